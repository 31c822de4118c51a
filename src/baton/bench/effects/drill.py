"""X10: the faults of a handoff, one kind at a time, in the production nodes in virtual time."""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from random import Random

import msgspec
from msgspec.structs import replace

from baton.bench.effects.effect import Effect
from baton.bench.effects.scout import Scout
from baton.core.ids import Role
from baton.signals import end_with_parent
from baton.sim.draw import draw_plan
from baton.sim.faults import Crash, Echo, FaultRates, MessageFault
from baton.sim.plan import Plan
from baton.sim.vopr import run_plan

RUNS = 50
"""Of each drill."""
_P, _D = Role.PREFILL, Role.DECODE
_ROLES = ((_P, _D), (_P, _D, _D), (_P, _P, _D), (_P, _P, _D, _D))
_ACKS = ("Authorized", "CreditReturn", "SourceRelease", "DoneAck")
_TRIES = 5
"""Seeds looked at for each run: not every plan moves bytes."""
_MARKS = (
    "handoffs",
    "aborts",
    "source_aborts",
    "fallback_reroute",
    "fallback_recompute",
    "stale_messages",
    "stale_chunks",
    "stale_hellos",
    "duplicate_chunks",
    "duplicate_messages",
)


class Tally(msgspec.Struct, kw_only=True):
    """Sums over the runs of one drill."""

    name: str
    num_runs: int = 0
    violations: list[str] = []
    injected: Counter[str] = msgspec.field(default_factory=Counter)
    """Faults that really happened, by kind."""
    marks: Counter[str] = msgspec.field(default_factory=Counter)
    ends: Counter[str] = msgspec.field(default_factory=Counter)


def calm_plan(seed: int) -> Plan:
    """The plan of a seed with two sides, one wire between them, and no fault at all."""
    plan = draw_plan(seed)
    return replace(
        plan,
        roles=_ROLES[seed % len(_ROLES)],
        unequal_pools=(),
        scheduled=(),
        rates=FaultRates(),
        clocks={},
        fault_end_us=3_000_000,
    )


def _kill(plan: Plan, scout: Scout, random: Random, *, sender: bool) -> Plan:
    copies = [copy for copy in scout.copies if copy.end_us < plan.fault_end_us]
    copy = random.choice(copies)
    crash = Crash(
        at_us=(copy.begin_us + copy.end_us) // 2,
        worker_id=copy.source_id if sender else copy.destination_id,
        noticed_after_us=random.choice([100, 50_000]),
        down_us=random.choice([1_000, 200_000]),
    )
    return replace(plan, scheduled=(crash,))


def kill_sender(plan: Plan, scout: Scout, random: Random) -> Plan:
    """The source dies while a chunk is on its way."""
    return _kill(plan, scout, random, sender=True)


def kill_receiver(plan: Plan, scout: Scout, random: Random) -> Plan:
    """The destination dies while a chunk is on its way."""
    return _kill(plan, scout, random, sender=False)


def duplicates(plan: Plan, scout: Scout, random: Random) -> Plan:
    """Messages and notifications of chunks come again, at once or much later."""
    del scout, random
    return replace(plan, rates=FaultRates(duplicate=0.2, repeat=0.3))


def stale_epochs(plan: Plan, scout: Scout, random: Random) -> Plan:
    """What was said to a life that has died, and by it, reaches the next one."""
    plan = _kill(plan, scout, random, sender=random.random() < 0.5)
    (crash,) = plan.scheduled
    assert isinstance(crash, Crash)
    crash = replace(crash, noticed_after_us=100, down_us=1_000)
    echo = Echo(at_us=crash.at_us + 100_000, worker_id=crash.worker_id)
    rates = FaultRates(reorder=0.2, duplicate=0.1)
    return replace(plan, scheduled=(crash, echo), rates=rates, late_delivery=True)


def lost_acks(plan: Plan, scout: Scout, random: Random) -> Plan:
    """Some answers that would have let the other side go on never arrive."""
    acks = [place for place, kind in scout.sent.items() if kind in _ACKS]
    lost = random.sample(acks, min(3, len(acks)))
    counted = tuple(MessageFault(lane=lane, number=number, kind="drop") for lane, number in lost)
    return replace(plan, counted=counted)


DRILLS: dict[str, Callable[[Plan, Scout, Random], Plan]] = {
    "kill sender": kill_sender,
    "kill receiver": kill_receiver,
    "duplicates": duplicates,
    "stale epochs": stale_epochs,
    "lost acks": lost_acks,
}


def run_drill(name: str, num_runs: int) -> Tally:
    """Run each plan calmly first, to see where its faults have to strike, and then with them."""
    tally = Tally(name=name)
    start = 1_000_000 * (1 + list(DRILLS).index(name))
    for seed in range(start, start + _TRIES * num_runs):
        if tally.num_runs == num_runs:
            break
        plan, before = calm_plan(seed), Scout()
        calm = run_plan(plan, before)
        if not calm.clean:
            tally.violations.append(f"seed {seed}, calm: {calm.checker}: {calm.text}")
            break
        if any(copy.end_us < plan.fault_end_us for copy in before.copies):
            _run(DRILLS[name](plan, before, Random(f"{name} {seed}")), tally)
    return tally


def _run(plan: Plan, tally: Tally) -> None:
    scout = Scout()
    outcome = run_plan(plan, scout)
    tally.num_runs += 1
    if not outcome.clean:
        text = f"{tally.name}, seed {plan.seed}: {outcome.checker}: {outcome.text}"
        tally.violations.append(text)
    tally.ends.update(outcome.ends)
    tally.marks.update({name: outcome.marks.get(name, 0) for name in _MARKS})
    tally.injected.update({f"{who} killed": n for who, n in scout.killed.items() if n})
    for fault in outcome.applied:
        if isinstance(fault, MessageFault):
            what = scout.sent.get((fault.lane, fault.number), "") if fault.kind == "drop" else ""
            kind = {"drop": f"lost {what}", "duplicate": "message twice"}.get(fault.kind)
            tally.injected[kind or "message late"] += 1
        else:
            kind = getattr(fault, "kind", "engine")
            tally.injected["notification twice" if kind == "repeat" else kind] += 1
    for mark in ("stale_messages", "stale_hellos"):
        if tally.name == "stale epochs":
            tally.injected[mark.replace("_", " ")] += outcome.marks.get(mark, 0)


def measure_drill(num_runs: int = RUNS) -> Effect:
    """Every drill, each in a process of its own."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(
        max_workers=min(cores, len(DRILLS)), initializer=end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        tallies = list(pool.map(run_drill, DRILLS, [num_runs] * len(DRILLS)))
    return judge_drill(tallies)


def judge_drill(tallies: list[Tally]) -> Effect:
    """No violation, in enough runs, with every kind of fault really injected."""
    num_runs = sum(tally.num_runs for tally in tallies)
    violations = [text for tally in tallies for text in tally.violations]
    marks: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for tally in tallies:
        marks.update(tally.marks)
        ends.update(tally.ends)
    wanted = {
        "kill sender": ("sender killed",),
        "kill receiver": ("receiver killed",),
        "duplicates": ("message twice", "notification twice"),
        "stale epochs": ("stale messages", "stale hellos"),
        "lost acks": tuple(f"lost {ack}" for ack in _ACKS),
    }
    missing = [kind for tally in tallies for kind in wanted[tally.name] if not tally.injected[kind]]
    served = sum(count for end, count in ends.items() if not end.startswith("failed"))
    shown = "; ".join(
        f"{tally.name} ({tally.num_runs} runs): "
        + ", ".join(f"{kind} {count}" for kind, count in tally.injected.most_common())
        for tally in tallies
    )
    return Effect(
        id="X10",
        title="Fault drill: no partial publication, no leak, fallback works",
        measured=(
            f"{num_runs} seeded runs, {len(violations)} violations; {shown}; "
            f"{marks['handoffs']} handoffs, {marks['aborts']} aborts, fallbacks: "
            f"{marks['fallback_reroute']} rerouted, {marks['fallback_recompute']} recomputed; "
            f"{served} of {sum(ends.values())} requests ended without an error"
            + (f"; never injected: {', '.join(missing)}" if missing else "")
        ),
        accept="0 violations over at least 200 runs, every kind injected, some requests fell back",
        met=not violations
        and num_runs >= 200
        and not missing
        and marks["fallback_reroute"] + marks["fallback_recompute"] > 0,
        figures={
            "num_runs": num_runs,
            "violations": violations,
            "injected": {tally.name: dict(tally.injected) for tally in tallies},
            "marks": dict(marks),
            "ends": dict(ends),
        },
    )
