"""Run a plan on a workload, by the production nodes or by the fast host, and sum up."""

from collections.abc import Callable
from typing import NamedTuple

from baton.errors import ConfigError
from baton.goodput.attainment import judge
from baton.goodput.percentiles import latency_summary
from baton.goodput.record import Outcome, RequestRecord
from baton.sim.replay.client import ReplayCounts
from baton.sim.replay.costs import Costs
from baton.sim.replay.replay import replay_counted
from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.fast import simulate_quickly
from baton.sim.simulate.fitting import fitting
from baton.sim.simulate.plan import Plan
from baton.sim.simulate.report import Report, failures_of, reuse_of, worker_shares
from baton.sim.simulate.table import Columns, columns_of_records, columns_of_result
from baton.sim.simulate.trace import in_whole_blocks
from baton.workload.request import Workload


class Simulated(NamedTuple):
    """What happened, summed up and request by request."""

    report: Report
    columns: Callable[[], Columns]
    """A table of the requests, made when it is asked for."""


def simulate(
    plan: Plan, costs: Costs, workload: Workload, *, on_done: Callable[[int], None] | None = None
) -> Report:
    """The plan's deployment under a workload, by the host that the plan names.

    The plan's trace options say how the requests are served; `on_done` hears how many are through.
    Raises ConfigError for a workload or a deployment that cannot be simulated.
    """
    return simulate_each(plan, costs, workload, on_done=on_done).report


def simulate_each(
    plan: Plan, costs: Costs, workload: Workload, *, on_done: Callable[[int], None] | None = None
) -> Simulated:
    """The same with a table of the requests."""
    if plan.is_fast:
        report, result = simulate_quickly(plan, costs, workload, on_done)
        return Simulated(report, lambda: columns_of_result(result))
    if plan.failures:
        raise ConfigError("--fail needs --fast: nothing fails under the production nodes here")
    served = in_whole_blocks(workload) if plan.trace.whole_blocks else workload
    setup = fitting(plan, served)
    records, counts = replay_counted(
        served, setup, costs, concurrency=plan.trace.concurrency, on_sent=on_done
    )
    report = _report(plan, costs, (workload, served), setup, records, counts)
    return Simulated(report, lambda: columns_of_records(records, counts.num_cached_tokens))


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
        warnings=plan.warnings,
    )
