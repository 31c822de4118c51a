"""Run a plan on a workload, by the production nodes or by the fast host, and sum up."""

import msgspec

from baton.goodput.attainment import judge
from baton.goodput.percentiles import latency_summary
from baton.goodput.record import Outcome, RequestRecord
from baton.sim.replay.client import ReplayCounts
from baton.sim.replay.costs import Costs
from baton.sim.replay.replay import replay_counted
from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.plan import Plan
from baton.sim.simulate.report import Report, failures_of, reuse_of, worker_shares
from baton.sim.simulate.trace import in_whole_blocks
from baton.workload.request import Workload


def simulate(plan: Plan, costs: Costs, workload: Workload) -> Report:
    """The production nodes on the simulated host.

    The plan's trace options say how the requests are served. Raises ConfigError for a workload or
    a deployment that cannot be simulated.
    """
    return simulate_each(plan, costs, workload)[0]


def simulate_each(
    plan: Plan, costs: Costs, workload: Workload
) -> tuple[Report, list[RequestRecord]]:
    """The report, and the records that it sums up."""
    served = in_whole_blocks(workload) if plan.trace.whole_blocks else workload
    setup = fitting(plan, served)
    records, counts = replay_counted(served, setup, costs, concurrency=plan.trace.concurrency)
    return _report(plan, costs, (workload, served), setup, records, counts), records


def _report(
    plan: Plan,
    costs: Costs,
    workloads: tuple[Workload, Workload],
    setup: ReplaySetup,
    records: list[RequestRecord],
    counts: ReplayCounts,
) -> Report:
    workload, served = workloads
    reuse = reuse_of(workload, records, counts.num_cached_tokens, setup.worker.block_size)
    blocks = {
        worker_id: setup.pool_blocks(costs, role)
        for worker_id, role in zip(setup.worker_ids, setup.roles, strict=True)
    }
    return Report(
        workload=workload.source,
        notes=served.notes,
        hardware=plan.hardware,
        config_digest=plan.config_digest,
        policy=setup.router.policy,
        num_requests=len(records),
        num_completed=sum(one.outcome is Outcome.COMPLETED for one in records),
        failures=failures_of(records),
        latency=latency_summary(records),
        reuse=reuse,
        token_hit_ratio=reuse.token_ratio,
        block_hit_ratio=reuse.block_ratio,
        moved_nbytes=counts.moved_nbytes_for,
        workers=worker_shares(counts, blocks),
        decisions=counts.decisions,
        counters=counts.counters,
        virtual_s=counts.duration_us / 1e6,
        num_events=counts.num_actions,
        attainment=judge(records, plan.targets) if plan.targets else None,
    )


def fitting(plan: Plan, served: Workload) -> ReplaySetup:
    """With a context for the longest request, where the plan names none."""
    longest = max(one.num_prompt_tokens + max(1, one.num_output_tokens) for one in served.requests)
    return msgspec.structs.replace(plan.setup, max_model_len=plan.max_model_len or longest)
