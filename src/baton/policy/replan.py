"""Replanning: how many workers prefill and how many decode, changed as the load does (0x08E).

A pool grows when its predicted tail misses its target. It shrinks only when the load after
shrinking, predicted first, stays well within it for a while; what it gives up is drained before it
goes. A worker that one pool can spare and the other one needs is flipped, since its weights are
loaded. Every action states its reason, and constant signals lead to a constant plan.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from statistics import NormalDist

import msgspec

from baton.core.ids import Role
from baton.policy.replan_predict import Demand, tpot_tail_us, ttft_tail_us
from baton.policy.replan_signals import PoolSignals, ReplanRules, Signals, WorkerRates

Tail = Callable[[int], float]
"""A predicted latency by the number of workers."""
US_PER_MS = 1000
REGRET, MOST_REGRETS = 3.0, 4
"""Growing within so many patiences after shrinking is a regret; so many of them count."""
LEAST_JUDGED = 0.8
"""Of the target share: below it, requests miss whatever the prediction says."""


class Kind(StrEnum):
    """What is done to one worker."""

    START = "start"
    DRAIN = "drain"
    FLIP = "flip"
    """Drain, then serve the other phase."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """For the worker of `role` that the host finds easiest to spare."""

    kind: Kind
    role: Role
    reason: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The arrivals of one interval."""

    until_us: float
    interval_us: float
    num_arrivals: int
    arrived_us: float


class ReplanState(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller remembers between intervals."""

    seen: tuple[Seen, ...] = ()
    spare_since_us: dict[Role, float] = {}
    """Since when a pool could be smaller, without interruption."""
    acted_us: dict[Role, float] = {}
    drained_us: dict[Role, float] = {}
    regrets: dict[Role, int] = {}
    """How often a pool grew again soon after it had shrunk: each doubles its patience."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers of one role its target asks for, and why not fewer."""

    least: int
    reason: str
    keep: int
    """The smallest pool that the load would leave well within its target."""
    kept: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of one interval, mostly none, and what they rest on."""

    actions: tuple[Action, ...]
    demand: Demand
    prefill: Wanted
    decode: Wanted
    note: str = ""
    """Why something that would help is not done."""


def replan(
    state: ReplanState, signals: Signals, rates: WorkerRates, rules: ReplanRules
) -> tuple[ReplanState, Decision]:
    """One interval's decision; equal arguments give equal decisions."""
    state = _remember(state, signals, rules)
    demand = expected_demand(state, rules)
    prefill = _prefill_wanted(state, demand, signals, rates, rules)
    decode = _decode_wanted(state, demand, signals, rates, rules)
    wanted = {Role.PREFILL: prefill, Role.DECODE: decode}
    pools = {Role.PREFILL: signals.prefill, Role.DECODE: signals.decode}
    state = _note_spare(state, signals, pools, wanted)
    actions, note = _grow(state, signals, pools, wanted, rates, rules)
    if not actions:
        actions = _shrink(state, signals, pools, wanted, rules)
    return _after(state, actions, signals.now_us, rules), Decision(
        actions=tuple(actions), demand=demand, prefill=prefill, decode=decode, note=note
    )


def _after(
    state: ReplanState, actions: Sequence[Action], now_us: float, rules: ReplanRules
) -> ReplanState:
    """What was done, and whether an earlier shrinking is regretted."""
    acted, drained, regrets = {**state.acted_us}, {**state.drained_us}, {**state.regrets}
    for action in actions:
        acted[action.role] = now_us
        grows = action.role if action.kind is Kind.START else None
        if action.kind is not Kind.START:
            drained[action.role] = now_us
        if action.kind is Kind.FLIP:
            grows = _other(action.role)
            acted[grows] = now_us
        if (
            grows is not None
            and now_us - drained.pop(grows, -math.inf) < REGRET * rules.patience_us
        ):
            regrets[grows] = min(MOST_REGRETS, regrets.get(grows, 0) + 1)
    return msgspec.structs.replace(state, acted_us=acted, drained_us=drained, regrets=regrets)


def _patience_us(state: ReplanState, role: Role, rules: ReplanRules) -> float:
    return float(rules.patience_us * 2 ** state.regrets.get(role, 0))


def expected_demand(state: ReplanState, rules: ReplanRules) -> Demand:
    """The larger of the short and the long mean, for requests and work together."""
    return max(
        (_mean(state, rules.short_us), _mean(state, rules.long_us)),
        key=lambda one: (one.prefill_load, one.requests_per_us),
    )


def _mean(state: ReplanState, span_us: float) -> Demand:
    if not state.seen:
        return Demand(requests_per_us=0.0, prefill_load=0.0)
    since_us = state.seen[-1].until_us - span_us
    part = [one for one in state.seen if one.until_us > since_us] or [state.seen[-1]]
    length_us = sum(one.interval_us for one in part)
    return Demand(
        requests_per_us=sum(one.num_arrivals for one in part) / length_us,
        prefill_load=sum(one.arrived_us for one in part) / length_us,
    )


def _remember(state: ReplanState, signals: Signals, rules: ReplanRules) -> ReplanState:
    since_us = signals.now_us - rules.long_us
    kept = tuple(one for one in state.seen if one.until_us > since_us)
    now = Seen(
        until_us=signals.now_us,
        interval_us=signals.interval_us,
        num_arrivals=signals.num_arrivals,
        arrived_us=signals.arrived_us,
    )
    return msgspec.structs.replace(state, seen=(*kept, now))


def _has_seen_enough(state: ReplanState, rules: ReplanRules) -> bool:
    """A few requests of a heavy-tailed mix predict anything."""
    return sum(one.interval_us for one in state.seen) >= rules.short_us


def _as_it_is(pool: PoolSignals, reason: str) -> Wanted:
    return Wanted(least=pool.coming, reason=reason, keep=pool.coming, kept=reason)


def _prefill_wanted(
    state: ReplanState, demand: Demand, signals: Signals, rates: WorkerRates, rules: ReplanRules
) -> Wanted:
    def tail_us(workers: int) -> float:
        return ttft_tail_us(
            demand, signals.prompt_cv2, signals.prompt_tail_us, workers, rules.attainment, rates
        )

    if not _has_seen_enough(state, rules):
        return _as_it_is(signals.prefill, "too little was seen yet")
    # Prompts that are longer than their target miss it with any number of workers: what the
    # others wait is held against what is left, and never less than half of the target.
    floor_us = signals.prompt_tail_us + rates.handoff_us
    target_us = max(rules.ttft_us, floor_us + rules.ttft_us / 2)
    most = max(1, rules.max_gpus // rates.prefill_gpus)
    least, keep = (
        _least(tail_us, target_us, most),
        _least(tail_us, floor_us + rules.shrink_share * (target_us - floor_us), most),
    )
    reason = _limit("TTFT", rules, least, tail_us, target_us)
    backlog = _for_backlog(demand, signals.prefill, rules)
    if backlog > least:
        seconds = signals.prefill.waiting_us / 1e6
        least, reason = min(backlog, most), f"{seconds:.1f} s of prompts wait"
    return Wanted(
        least=least,
        reason=reason,
        keep=max(keep, least),
        kept=f"TTFT would stay at {_ms(tail_us(max(keep, least)))} ms",
    )


def _decode_wanted(
    state: ReplanState, demand: Demand, signals: Signals, rates: WorkerRates, rules: ReplanRules
) -> Wanted:
    spread = NormalDist().inv_cdf(rules.attainment)

    def tail_us(workers: int) -> float:
        return tpot_tail_us(
            demand,
            signals.mean_output,
            signals.mean_context,
            signals.decode.active + signals.decode.waiting,
            workers,
            spread,
            rates,
        )

    if not _has_seen_enough(state, rules):
        return _as_it_is(signals.decode, "too little was seen yet")
    floor_us = rates.decode_step_us
    target_us = max(rules.tpot_us, 1.1 * floor_us)
    most = max(1, rules.max_gpus // rates.decode_gpus)
    least, keep = (
        _least(tail_us, target_us, most),
        _least(tail_us, floor_us + rules.shrink_share * (target_us - floor_us), most),
    )
    return Wanted(
        least=least,
        reason=_limit("TPOT", rules, least, tail_us, target_us),
        keep=max(keep, least),
        kept=f"TPOT would stay at {_ms(tail_us(max(keep, least)))} ms",
    )


def _least(tail_us: Tail, target_us: float, most: int) -> int:
    """The smallest pool within the target; the largest possible one if none is."""
    return next((n for n in range(1, most + 1) if tail_us(n) <= target_us), most)


def _for_backlog(demand: Demand, pool: PoolSignals, rules: ReplanRules) -> int:
    """Workers that work a queue off in time beside what still comes; 0 without such a queue."""
    if pool.waiting_us <= rules.ttft_us * max(1, pool.ready):
        return 0
    return math.ceil(demand.prefill_load + pool.waiting_us / (rules.start_us + rules.drain_us))


def _note_spare(
    state: ReplanState,
    signals: Signals,
    pools: dict[Role, PoolSignals],
    wanted: dict[Role, Wanted],
) -> ReplanState:
    spare = {
        role: state.spare_since_us.get(role, signals.now_us)
        for role, pool in pools.items()
        if wanted[role].keep < pool.ready
    }
    return msgspec.structs.replace(state, spare_since_us=spare)


def _grow(
    state: ReplanState,
    signals: Signals,
    pools: dict[Role, PoolSignals],
    wanted: dict[Role, Wanted],
    rates: WorkerRates,
    rules: ReplanRules,
) -> tuple[list[Action], str]:
    """Flip what the other pool can spare, start what the budget allows."""
    gpus = {Role.PREFILL: rates.prefill_gpus, Role.DECODE: rates.decode_gpus}
    free = rules.max_gpus - sum(pool.paid * gpus[role] for role, pool in pools.items())
    actions, note = [], ""
    for role, pool in pools.items():
        other, missing = _other(role), max(0, wanted[role].least - pool.coming)
        reason = wanted[role].reason
        if not missing and _misses(signals, role, rules) and not pool.starting:
            missing, reason = 1, _missed(signals, role, rules)
        spare = _spare_for_flips(state, signals, pools[other], other, wanted[other], rules)
        can_flip = gpus[role] == gpus[other] and rules.flip_us < rules.start_us
        for _ in range(missing):
            if spare > 0 and can_flip:
                spare -= 1
                text = f"{reason}; {other} can spare it, {wanted[other].kept}"
                actions.append(Action(kind=Kind.FLIP, role=other, reason=text))
            elif free >= gpus[role]:
                free -= gpus[role]
                actions.append(Action(kind=Kind.START, role=role, reason=reason))
            else:
                note = f"{role} needs more, and all {rules.max_gpus} GPUs are in use: {reason}"
    return actions, note


def _spare_for_flips(
    state: ReplanState,
    signals: Signals,
    pool: PoolSignals,
    role: Role,
    wanted: Wanted,
    rules: ReplanRules,
) -> int:
    """Workers that a pool gives to the other one: not those of a moment's lull, nor new ones."""
    since_us = state.spare_since_us.get(role, math.inf)
    acted_us = state.acted_us.get(role, -math.inf)
    if signals.now_us - max(since_us, acted_us) < rules.cooldown_us:
        return 0
    return pool.ready - max(1, wanted.keep)


def _shrink(
    state: ReplanState,
    signals: Signals,
    pools: dict[Role, PoolSignals],
    wanted: dict[Role, Wanted],
    rules: ReplanRules,
) -> list[Action]:
    """One worker of one pool at most, the one that could be smaller for longest."""
    for role, since_us in sorted(state.spare_since_us.items(), key=lambda item: item[1]):
        pool, acted_us = pools[role], state.acted_us.get(role, -math.inf)
        is_moving = pool.starting or pool.draining
        rests = signals.now_us - acted_us >= rules.cooldown_us
        waited_us = signals.now_us - since_us
        if is_moving or not rests or waited_us < _patience_us(state, role, rules) or pool.ready < 2:
            continue
        if _misses(signals, role, rules):
            continue
        text = f"{wanted[role].keep} would do for {waited_us / 1e6:.0f} s: {wanted[role].kept}"
        return [Action(kind=Kind.DRAIN, role=role, reason=text)]
    return []


def _misses(signals: Signals, role: Role, rules: ReplanRules) -> bool:
    met = signals.ttft_met if role is Role.PREFILL else signals.tpot_met
    pool = signals.prefill if role is Role.PREFILL else signals.decode
    # A share of few requests says little; a pool without a queue cannot be helped by more workers.
    return met is not None and met < LEAST_JUDGED * rules.attainment and pool.waiting > pool.ready


def _missed(signals: Signals, role: Role, rules: ReplanRules) -> str:
    met = signals.ttft_met if role is Role.PREFILL else signals.tpot_met
    clock = "TTFT" if role is Role.PREFILL else "TPOT"
    return f"{met or 0.0:.0%} met their {clock}, {rules.attainment:.0%} should"


def _limit(clock: str, rules: ReplanRules, least: int, tail_us: Tail, target_us: float) -> str:
    share = f"{clock} p{100 * rules.attainment:g}"
    if least == 1:
        return f"{share} predicted {_ms(tail_us(1))} of {_ms(target_us)} ms with 1"
    fewer = _ms(tail_us(least - 1))
    return f"{share} predicted {fewer} of {_ms(target_us)} ms with {least - 1}"


def _ms(time_us: float) -> str:
    return "unbounded" if math.isinf(time_us) else f"{time_us / US_PER_MS:.0f}"


def _other(role: Role) -> Role:
    return Role.DECODE if role is Role.PREFILL else Role.PREFILL
