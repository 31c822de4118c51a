"""Draws a plan from a seed: a random deployment, workload and mix of faults (swarm testing)."""

from random import Random

from msgspec.structs import replace

from baton.config import CacheConfig, RouterConfig, TransferConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.ids import Direction, PromptOrder, Role
from baton.core.request import Request, SamplingParams
from baton.nodes.context import ROUTER
from baton.policy.batching.policies import POLICIES
from baton.sim.arithmetic import Truth, model_info
from baton.sim.clock import Clock
from baton.sim.draw_copies import with_copies
from baton.sim.draw_given_up import with_given_up
from baton.sim.draw_routes import with_routes
from baton.sim.draw_tiers import with_tiers
from baton.sim.faults import (
    Clog,
    Crash,
    Echo,
    FaultRates,
    Hang,
    Partition,
    Revoke,
    Scheduled,
    Slow,
    Stall,
)
from baton.sim.plan import Arrival, Hardware, Plan

_P, _D, _M = Role.PREFILL, Role.DECODE, Role.MIXED
_ROLES = (
    *((_P, _D),) * 4,
    (_P, _D, _D),
    (_P, _P, _D),
    (_P, _P, _D, _D),
    (_M,),
    (_M, _M),
)
_KINDS = ("crash", "stall", "slow", "partition", "clog", "revoke", "drift")
_KINDS_COUNTED = (
    "drop",
    "duplicate",
    "reorder",
    "forge",
    "corrupt",
    "fail",
    "late",
    "repeat",
    "engine",
)
_RATES_HOSTILE = {
    "replay": (0.2, 0.5, 0.8),
    "strip": (0.1, 0.3),
    "mangle": (0.1, 0.3),
    "intrude": (0.05, 0.2, 0.5),
    "contradict": (0.02, 0.1),
    "digest": (0.01, 0.05),
}
"""Few messages carry a right or an offer, so what is done to them happens more often."""


def draw_plan(seed: int) -> Plan:
    """The plan of a seed; the same in every process and on every machine."""
    random = Random(seed)
    roles = random.choice(_ROLES)
    block_size = random.choice([1, 2, 4, 4, 8])
    num_blocks = random.choice([12, 16, 24, 32, 64])
    num_layers = random.choice([1, 2, 3, 4])
    info = model_info(block_size, num_layers, 512)
    plan = Plan(
        seed=seed,
        roles=roles,
        num_blocks=num_blocks,
        num_layers=num_layers,
        max_model_len=min(512, num_blocks * block_size - 1),
        worker=_worker(random, block_size),
        cache=_cache(random),
        transfer=_transfer(random, info.layout.layer_block_nbytes),
        router=_router(random),
        hardware=draw_hardware(random),
        late_delivery=random.random() < 0.3,
        fault_end_us=random.choice([1_000_000, 3_000_000, 6_000_000]),
    )
    plan = _with_faults(random, _with_requests(random, plan))
    plan = _with_second_turns(random, _with_wire(random, plan))
    plan = _with_hostility(random, _with_questions(random, _with_pressure(random, plan)))
    plan = _with_policy(Random(f"{seed} policy"), plan)
    plan = _with_geometry(Random(f"{seed} geometry"), plan)
    plan = with_routes(Random(f"{seed} routes"), plan)
    plan = with_tiers(Random(f"{seed} tiers"), plan)
    plan = with_copies(Random(f"{seed} copies"), plan)
    return with_given_up(Random(f"{seed} given up"), plan)


def _with_policy(random: Random, plan: Plan) -> Plan:
    """Half of the plans batch in another way than by default."""
    if random.random() < 0.5:
        return plan
    policy = random.choice(sorted(POLICIES))
    fcfs_only = policy != "phase_pure"
    worker = replace(
        plan.worker,
        batch_policy=policy,
        prompt_order=PromptOrder.FCFS if fcfs_only else random.choice(list(PromptOrder)),
        age_override_ms=random.choice([0, 1, 50]),
        max_passed_over=random.choice([0, 1, 4]),
        max_preemptions=random.choice([0, 1, 4]),
    )
    return replace(plan, worker=worker)


def _with_geometry(random: Random, plan: Plan) -> Plan:
    """Some plans move everything at once; some decode in blocks of another size than they prefill.

    Pools keep their rows, so what fitted still fits, and credit still holds a block.
    """
    if random.random() < 0.2:
        plan = replace(plan, transfer=replace(plan.transfer, schedule="aggregated"))
    if random.random() < 0.7 or _D not in plan.roles:
        return plan
    own, transfer = plan.worker.block_size, plan.transfer
    size = random.choice([size for size in (own // 2, 2 * own, 4 * own) if size])
    factor = max(1, size // own)
    pools = tuple(
        max(2, pool * own // size) if role is _D else pool
        for pool, role in zip(plan.pools, plan.roles, strict=True)
    )
    transfer = replace(
        transfer,
        chunk_nbytes=transfer.chunk_nbytes * factor,
        credit_nbytes=transfer.credit_nbytes * factor,
    )
    return replace(plan, decode_block_size=size, unequal_pools=pools, transfer=transfer)


def _worker(random: Random, block_size: int) -> WorkerConfig:
    return WorkerConfig(
        block_size=block_size,
        max_batch_tokens=random.choice([4, 8, 16, 64, 128]),
        growth_tokens=random.choice([0, 1, 4, 16, 256]),
        max_num_seqs=random.choice([1, 2, 4, 32]),
        max_reservations=random.choice([1, 2, 64]),
    )


def _cache(random: Random) -> CacheConfig:
    keeps, keeps_answers = random.random() < 0.7, random.random() < 0.3
    kept = Milestone.DECODE if keeps_answers else Milestone.PROMPT
    return CacheConfig(milestone=kept if keeps else Milestone.NONE)


def _transfer(random: Random, layer_block_nbytes: int) -> TransferConfig:
    chunk = layer_block_nbytes * random.choice([1, 1, 2, 3, 16])
    retry_ms = random.choice([50, 200, 500])
    return TransferConfig(
        chunk_nbytes=chunk,
        credit_nbytes=chunk * random.choice([1, 1, 2, 8]),
        direction=random.choice(list(Direction)),
        schedule=random.choice(["auto", "layer", "request"]),
        checksum=random.random() < 0.8,
        lease_ms=random.choice([600, 1000, 3000, 10_000]),
        retry_ms=retry_ms,
        capability_ttl_ms=random.choice([retry_ms, 1000, 10_000]),
    )


def _router(random: Random) -> RouterConfig:
    return RouterConfig(
        max_attempts=random.choice([1, 3, 3, 5]),
        attempt_timeout_ms=random.choice([1500, 3000, 10_000]),
        ttft_budget_ms=random.choice([10_000, 60_000]),
        heartbeat_ms=random.choice([100, 500]),
        worker_timeout_ms=random.choice([1000, 5000]),
    )


def draw_hardware(random: Random) -> Hardware:
    """A pace of engine, data plane and network; each draw orders concurrent events otherwise."""
    return Hardware(
        row_us=random.choice([5, 50]),
        step_us=random.choice([100, 2000]),
        copy_us=random.choice([10, 500]),
        copy_us_per_kib=random.choice([1, 200]),
        control_us=random.choice([20, 100, 2000]),
        control_jitter_us=random.choice([0, 100, 5000]),
        notify_us=random.choice([5, 500]),
        digest_us=random.choice([5, 500]),
    )


def _with_requests(random: Random, plan: Plan) -> Plan:
    model = model_info(plan.worker.block_size, plan.num_layers, plan.max_model_len)
    shared = [random.randrange(9) for _ in range(plan.max_model_len)]
    span_us = plan.fault_end_us * 2 // 3
    arrivals = []
    for number in range(random.choice([random.randrange(1, 9), random.randrange(1, 25)])):
        max_tokens = random.choice([random.randrange(1, 11), random.randrange(1, 41)])
        longest = max(2, min(plan.max_model_len - max_tokens - 1, 70))
        length = random.randrange(1, longest)
        tail = [random.randrange(50) for _ in range(length)]
        keep = random.choice([0, length, random.randrange(length + 1)])
        request = Request(
            request_id=f"r{number}",
            prompt_token_ids=tuple((shared[:keep] + tail)[:length]),
            sampling=SamplingParams(max_tokens=max_tokens, seed=random.randrange(3)),
            tenant_id=random.choice(["", "", "a", "b"]),
            cache_salt=random.choice(["", "", "salt"]),
            verify=random.random() < 0.1,
        )
        if random.random() < 0.15:
            request = _with_stop_token(random, request, Truth(request, model))
        cancelled = random.random() < 0.25
        arrivals.append(
            Arrival(
                at_us=20_000 + random.randrange(span_us if random.random() < 0.6 else 50_000),
                request=request,
                cancel_after_us=int(10 ** random.uniform(2, 6)) if cancelled else -1,
                cancel_reason=random.choice(["disconnect", "stop"]),
            )
        )
    return replace(plan, arrivals=tuple(arrivals))


def _with_stop_token(random: Random, request: Request, truth: Truth) -> Request:
    sampling = replace(request.sampling, stop_token_ids=(random.choice(truth.outputs),))
    return replace(request, sampling=sampling)


def _with_faults(random: Random, plan: Plan) -> Plan:
    """A random subset of the kinds of faults, each at a random intensity; a tenth stay calm."""
    if random.random() < 0.1:
        return plan
    kinds = [kind for kind in _KINDS if random.random() < 0.3]
    scheduled: list[Scheduled] = []
    for kind in kinds:
        for _ in range(random.choice([1, 1, 2, 4])):
            fault = _scheduled(random, kind, plan)
            if fault is not None:
                scheduled.append(fault)
    rates = {
        kind: random.choice([0.01, 0.05, 0.2]) for kind in _KINDS_COUNTED if random.random() < 0.25
    }
    if not plan.transfer.checksum:
        rates.pop("corrupt", None)  # nothing else could notice
    clocks = {}
    if "drift" in kinds:
        for name in (ROUTER, *plan.worker_ids):
            clocks[name] = Clock(
                offset_us=random.randrange(10**9), drift_ppm=random.randrange(-200, 201)
            )
    return replace(plan, scheduled=tuple(scheduled), rates=FaultRates(**rates), clocks=clocks)


def _with_wire(random: Random, plan: Plan) -> Plan:
    """Copies of some troubled plans take so long that aborts of every kind meet them under way.

    Calm plans keep their wire, since a request that times out on a slow one is no bug.
    """
    if not plan.scheduled or random.random() >= 0.25:
        return plan
    return replace(plan, hardware=replace(plan.hardware, copy_us=20_000))


def _with_second_turns(random: Random, plan: Plan) -> Plan:
    """Where generated rows are reused, some client sends an answer back with its next prompt."""
    if not plan.cache.milestone.decode_keeps_answers:
        return plan
    model = model_info(plan.worker.block_size, plan.num_layers, plan.max_model_len)
    turns = []
    for first in random.sample(plan.arrivals, min(2, len(plan.arrivals))):
        request = first.request
        outputs = Truth(request, model).outputs
        prompt = (*request.prompt_token_ids, *outputs, random.randrange(50))
        longest = max(1, min(plan.max_model_len - request.sampling.max_tokens - 1, 70))
        second = replace(
            request, request_id=f"{request.request_id}-next", prompt_token_ids=prompt[:longest]
        )
        at_us = first.at_us + int(10 ** random.uniform(4.5, 6))
        turns.append(Arrival(at_us=at_us, request=second))
    return replace(plan, arrivals=(*plan.arrivals, *turns))


def _moment(random: Random, plan: Plan) -> int:
    """Mostly soon after some request arrived: faults of idle times find nothing."""
    if random.random() < 0.2:
        return random.randrange(10_000, plan.fault_end_us)
    return random.choice(plan.arrivals).at_us + int(10 ** random.uniform(2, 5.5))


def _scheduled(random: Random, kind: str, plan: Plan) -> Scheduled | None:
    at_us = _moment(random, plan)
    worker_id = random.choice(plan.worker_ids)
    duration_us = int(10 ** random.uniform(3, 6.7))
    others = [name for name in (ROUTER, *plan.worker_ids) if name != worker_id]
    match kind:
        case "crash":
            return Crash(
                at_us=at_us,
                worker_id=worker_id,
                noticed_after_us=random.choice([100, 50_000]),
                down_us=random.choice([1_000, 200_000, 2_000_000]),
            )
        case "stall":
            return Stall(at_us=at_us, worker_id=worker_id, duration_us=duration_us)
        case "slow":
            factor = random.choice([3, 20])
            return Slow(at_us=at_us, worker_id=worker_id, duration_us=duration_us, factor=factor)
        case "partition" | "clog":
            fault = Partition if kind == "partition" else Clog
            between = (worker_id, random.choice(others))
            return fault(at_us=at_us, between=between, duration_us=duration_us)
        case "revoke":
            return Revoke(at_us=at_us)
    return None


def _with_pressure(random: Random, plan: Plan) -> Plan:
    """Some routers queue little and not for long; some pools differ; half of the keys are private.

    The longest sequence fits every pool that decodes, as in a deployment; a prompt need not fit
    every pool that computes one.
    """
    router = plan.router
    if random.random() < 0.15:
        router = replace(
            router,
            max_waiting_requests=random.choice([1, 2, 4]),
            max_pending_tokens=random.choice([80, 200, 100_000]),
        )
    if random.random() < 0.1:
        router = replace(router, ttft_budget_ms=random.choice([100, 400, 1000]))
    pools: tuple[int, ...] = ()
    if random.random() < 0.15:
        decodes = [plan.num_blocks * random.choice([1, 2]) for _ in plan.roles]
        prefills = [max(2, plan.num_blocks * random.choice([1, 2, 4]) // 4) for _ in plan.roles]
        pools = tuple(
            prefills[number] if role is _P else decodes[number]
            for number, role in enumerate(plan.roles)
        )
    return replace(plan, router=router, unequal_pools=pools, asymmetric=random.random() < 0.5)


def _with_questions(random: Random, plan: Plan) -> Plan:
    """Some clients want log probabilities, or at least so many tokens; some prompts fit nowhere."""
    arrivals = []
    for arrival in plan.arrivals:
        request, sampling = arrival.request, arrival.request.sampling
        if random.random() < 0.2:
            sampling = replace(sampling, num_logprobs=random.choice([0, 1, 3]))
        if random.random() < 0.1:
            sampling = replace(sampling, min_tokens=random.randrange(sampling.max_tokens + 1))
        arrivals.append(replace(arrival, request=replace(request, sampling=sampling)))
    if random.random() < 0.05:
        first = arrivals[0]
        length = max(plan.pools) * plan.worker.block_size + random.randrange(1, 9)
        prompt = tuple(random.randrange(50) for _ in range(length))
        request = replace(first.request, request_id="r-large", prompt_token_ids=prompt)
        arrivals.append(replace(first, request=request, cancel_after_us=-1))
    return replace(plan, arrivals=tuple(arrivals))


def _with_hostility(random: Random, plan: Plan) -> Plan:
    """Rights and words in the wrong hands, read-backs that fail, engines that hang, old hellos."""
    calm = not plan.scheduled and plan.rates == FaultRates()
    if calm or random.random() < 0.5:
        return plan
    rates = {
        kind: random.choice(_RATES_HOSTILE[kind])
        for kind in _RATES_HOSTILE
        if random.random() < 0.3
    }
    if not plan.transfer.checksum:
        rates.pop("contradict", None)  # the second notification says the same
    scheduled: list[Scheduled] = list(plan.scheduled)
    router = plan.router
    if random.random() < 0.2:
        worker_id = random.choice(plan.worker_ids)
        scheduled.append(Hang(at_us=_moment(random, plan), worker_id=worker_id))
        router = replace(router, batch_timeout_ms=3000, decode_stall_ms=3000)
    if random.random() < 0.2:
        crashes = [fault for fault in plan.scheduled if isinstance(fault, Crash)]
        for crash in crashes:
            at_us = crash.at_us + int(10 ** random.uniform(4, 6.5))
            scheduled.append(Echo(at_us=at_us, worker_id=crash.worker_id))
    changed = {name: getattr(plan.rates, name) for name in _KINDS_COUNTED}
    return replace(
        plan,
        router=router,
        scheduled=tuple(scheduled),
        rates=FaultRates(**changed, **rates),
    )
