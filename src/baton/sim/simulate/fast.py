"""The fast host on the deployment that a plan describes, summed up as the same report."""

import math
from collections.abc import Callable
from itertools import groupby

import msgspec
import numpy as np

from baton.core.cache import Milestone
from baton.core.ids import Role, Schedule
from baton.errors import ConfigError
from baton.goodput.attainment import judge
from baton.goodput.percentiles import PERCENTILES
from baton.goodput.record import Outcome, RequestRecord
from baton.sim.fast.deployment import Delays, Deployment, Handoff, Topology, WorkerGroup
from baton.sim.fast.result import End, FastResult, Floats
from baton.sim.fast.run import Simulation
from baton.sim.fast.workload import FastWorkload, pack
from baton.sim.replay.costs import Costs, of_role
from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.curves import curves_of
from baton.sim.simulate.fitting import fitting
from baton.sim.simulate.plan import Plan
from baton.sim.simulate.report import Report, Reuse, WorkerShare
from baton.sim.simulate.trace import in_whole_blocks
from baton.workload.request import Workload

US_PER_MS = 1000.0
NUM_SLICES = 200
"""Of a simulation, for its progress."""


def simulate_quickly(
    plan: Plan, costs: Costs, workload: Workload, on_done: Callable[[int], None] | None = None
) -> tuple[Report, FastResult]:
    """Iterations instead of messages; raises ConfigError for what only the nodes can do."""
    if plan.trace.concurrency:
        raise ConfigError("--fast and --closed-loop do not go together; leave one out")
    served = in_whole_blocks(workload) if plan.trace.whole_blocks else workload
    setup = fitting(plan, served)
    deployment = msgspec.structs.replace(deployment_of(setup, costs), failures=plan.failures)
    result = _run(deployment, pack(served), on_done)
    return _report(plan, setup, workload, served, deployment, result), result


def _run(
    deployment: Deployment, workload: FastWorkload, on_done: Callable[[int], None] | None
) -> FastResult:
    simulation = Simulation(deployment, workload)
    slice_us = max(1.0, float(workload.arrival_us[-1]) / NUM_SLICES)
    stop_us = slice_us
    # Slices cost nothing and change nothing; after the last arrival they only grow.
    while not simulation.run_until(stop_us):
        if on_done is not None:
            on_done(simulation.num_ended)
        stop_us += slice_us if stop_us < workload.arrival_us[-1] else stop_us
    return simulation.result()


def deployment_of(setup: ReplaySetup, costs: Costs) -> Deployment:
    """The same workers, memory, policies and links; what a message costs becomes a delay."""
    delays, cost = setup.delays, costs.transfer
    layout = costs.subject.shape.layout
    return Deployment(
        groups=tuple(
            _group(setup, of_role(costs, role), role, len(list(equal)))
            for role, equal in groupby(setup.roles)
        ),
        handoff=Handoff(
            token_nbytes=layout.bytes_per_token,
            num_layers=layout.num_layers,
            schedule=_schedule(setup.transfer.schedule),
        ),
        topology=Topology(
            egress_bytes_per_us=cost.bytes_per_us,
            ingress_bytes_per_us=of_role(costs, Role.DECODE).transfer.bytes_per_us,
            latency_us=cost.operation_us,
        ),
        route=setup.router.policy,
        balancing_threshold=setup.router.balancing_threshold,
        delays=Delays(
            gateway_in_us=delays.gateway_in_us,
            gateway_out_us=delays.gateway_out_us,
            control_us=delays.control_us,
        ),
        seed=setup.seed,
    )


def _group(setup: ReplaySetup, costs: Costs, role: Role, num_workers: int) -> WorkerGroup:
    layout = setup.layout(costs, role)
    return WorkerGroup(
        name=str(role),
        role=role,
        num_workers=num_workers,
        curves=curves_of(costs),
        kv_tokens=setup.pool_blocks(costs, role) * layout.block_size,
        block_size=layout.block_size,
        batch_policy=setup.worker.batch_policy,
        max_batch_tokens=setup.worker.max_batch_tokens,
        max_num_seqs=setup.worker.max_num_seqs,
        keeps_prefixes=setup.cache.milestone is not Milestone.NONE,
        step_overhead_us=costs.overhead.step_us,
        sequence_overhead_us=costs.overhead.sequence_us,
    )


def _schedule(name: str) -> Schedule:
    return Schedule.LAYER if name == "auto" else Schedule(name)


def _report(
    plan: Plan,
    setup: ReplaySetup,
    workload: Workload,
    served: Workload,
    deployment: Deployment,
    result: FastResult,
) -> Report:
    done = result.is_completed
    reuse = _reuse(workload, result, setup.worker.block_size)
    token_nbytes = deployment.handoff.token_nbytes if deployment.handoff else 0
    moved = int(result.num_moved.sum()) * token_nbytes
    codes = result.end[~done].tolist()
    failures = {one.name.lower(): codes.count(one) for one in End if codes.count(one)}
    return Report(
        workload=workload.source,
        notes=served.notes,
        hardware=plan.hardware,
        config_digest=plan.config_digest,
        policy=setup.router.policy,
        num_requests=len(done),
        num_completed=int(done.sum()),
        failures=failures,
        latency=latency_of(result),
        reuse=reuse,
        token_hit_ratio=reuse.token_ratio,
        block_hit_ratio=reuse.block_ratio,
        moved_nbytes={"handoff": moved} if moved else {},
        workers=_shares(deployment, result),
        decisions={},
        counters=dict(sorted(result.counters.items())),
        virtual_s=result.duration_us / 1e6,
        num_events=result.num_events,
        attainment=judge(records_of(result), plan.targets) if plan.targets else None,
        warnings=plan.warnings,
    )


def latency_of(result: FastResult) -> dict[str, float | None]:
    """The keys of `goodput.percentiles.latency_summary`; gaps come from their histogram."""
    done = result.is_completed
    summary: dict[str, float | None] = {}
    for name, values_us in (
        ("ttft", result.ttft_us),
        ("tpot", result.tpot_us),
        ("e2el", result.e2e_us),
    ):
        values = values_us[done & np.isfinite(values_us)] / US_PER_MS
        summary |= _figures(name, values)
    return summary


def _figures(name: str, values: Floats) -> dict[str, float | None]:
    has_any = len(values) > 0
    found: dict[str, float | None] = {
        f"mean_{name}_ms": float(values.mean()) if has_any else None,
        f"median_{name}_ms": float(np.median(values)) if has_any else None,
        f"std_{name}_ms": float(values.std()) if has_any else None,
    }
    for q in PERCENTILES:
        found[f"p{q:g}_{name}_ms"] = float(np.percentile(values, q)) if has_any else None
    return found


def records_of(result: FastResult) -> list[RequestRecord]:
    """As clients would have written them, with the first and the last token's time alone."""
    outcomes = {int(End.COMPLETED): Outcome.COMPLETED}
    records = []
    for index, code in enumerate(result.end.tolist()):
        first_us, last_us = result.first_us[index], result.last_us[index]
        times = () if math.isnan(first_us) else (round(first_us), round(last_us))
        arrival_us = round(result.arrival_us[index])
        records.append(
            RequestRecord(
                request_id=f"r{index}",
                scheduled_us=arrival_us,
                sent_us=arrival_us,
                token_times_us=times,
                end_us=times[-1] if times else arrival_us,
                num_prompt_tokens=int(result.num_prompt[index]),
                num_output_tokens=int(result.num_output[index]),
                outcome=outcomes.get(code, Outcome.FAILED),
                error="" if code in outcomes else End(code).name.lower(),
            )
        )
    return records


def _reuse(workload: Workload, result: FastResult, block_size: int) -> Reuse:
    done = result.is_completed
    prompts = np.array([one.num_prompt_tokens for one in workload.requests], np.int64)[done]
    cached = np.minimum(result.num_cached[done], prompts)
    return Reuse(
        num_prompt_tokens=int(prompts.sum()),
        num_cached_tokens=int(cached.sum()),
        num_prompt_blocks=int((-(-prompts // block_size)).sum()),
        num_cached_blocks=int((result.num_cached[done] // block_size).sum()),
    )


def _shares(deployment: Deployment, result: FastResult) -> tuple[WorkerShare, ...]:
    groups = [group for group in deployment.groups for _ in range(group.num_workers)]
    duration_us = result.duration_us or math.inf
    return tuple(
        WorkerShare(
            worker_id=name,
            num_blocks=group.kv_tokens // group.block_size,
            num_steps=int(result.workers.num_steps[index]),
            busy=float(result.workers.busy_us[index]) / duration_us,
        )
        for index, (name, group) in enumerate(zip(result.workers.names, groups, strict=True))
    )
