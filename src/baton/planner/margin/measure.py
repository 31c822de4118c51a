"""The net margin of one cell, from simulations of both sides on the same requests.

The mean time of a request from arrival to last token is taken apart in steps, each with one cost
more: colocated; split with links and messages that take no time; with the cell's links; with the
deployment's delays; with its failures. Neighbouring steps differ by what the cost exposes, queues
that it causes included, and all differences add up to the margin exactly.
"""

import math

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.goodput.margin import MarginVerdict, NetMargin, decide
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.planner.goodput.attained import Attained, Rule, attain, counted, summed
from baton.planner.margin.cell import Cell
from baton.planner.placement.found import Arm
from baton.sim.fast.deployment import Delays, Deployment, Topology
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

ENDLESS_BYTES_PER_US = 1e15


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment, which takes its share of the requests beside equal ones."""

    deployment: Deployment
    num_cells: int = 1


def side_of(arm: Arm) -> Side:
    """A placement's part, and how many of it there are."""
    return Side(deployment=arm.deployment, num_cells=arm.num_cells)


class MarginAsk(msgspec.Struct, frozen=True, kw_only=True):
    """How a cell is judged."""

    targets: SLOTargets
    safety_margin_us: float = 0.0
    """Splitting has to save more than this for each request."""
    seeds: tuple[int, ...] = (0, 1, 2)
    num_requests: int = 800
    rule: Rule = Rule()

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < 3:
            raise ConfigError(f"seeds = {self.seeds}: give at least 3 different ones")
        if self.targets.ttft_us is None or self.targets.tpot_us is None:
            raise ConfigError(
                f"net margin: targets {self.targets} lack a TTFT or a TPOT; both gates are needed"
            )
        if self.num_requests < 20:
            raise ConfigError(f"num_requests = {self.num_requests}: at least 20")


class CellMargin(msgspec.Struct, frozen=True, kw_only=True):
    """What splitting gains in one cell, and whether it should be done there."""

    cell: Cell
    verdict: MarginVerdict
    delta: Estimate
    """Of the margin over seeds, in microseconds for each request."""
    colocated: Attained
    split: Attained

    @property
    def is_certain(self) -> bool:
        """The interval lies on one side of the safety margin."""
        safety = self.verdict.safety_margin_us
        return self.delta.low > safety or self.delta.high <= safety


def net_margin(
    colocated: Side, split: Side, trace: FastWorkload, cell: Cell, ask: MarginAsk
) -> CellMargin:
    """Of requests drawn from a trace."""
    parts: list[NetMargin] = []
    colocated_attained, split_attained = [], []
    for seed in ask.seeds:
        first = _run(colocated, colocated.deployment, trace, cell, ask, seed)
        steps = _steps(cell.linked(split.deployment))
        results = [_run(split, one, trace, cell, ask, seed) for one in steps]
        parts.append(_apart(first, results, ask.rule))
        colocated_attained.append(attain(first, ask.targets, ask.rule))
        split_attained.append(attain(results[-1], ask.targets, ask.rule))
    attained = summed(split_attained)
    share = ask.targets.attainment
    return CellMargin(
        cell=cell,
        verdict=decide(
            _mean(parts),
            ask.safety_margin_us,
            ttft_passes=attained.shares["ttft"] >= share,
            tpot_passes=attained.shares["tpot"] >= share,
        ),
        delta=student_mean([one.delta_us for one in parts]),
        colocated=summed(colocated_attained),
        split=attained,
    )


def _steps(split: Deployment) -> list[Deployment]:
    """Without any of its costs, then with one more each: links, delays, failures."""
    replace = msgspec.structs.replace
    linked = replace(split, delays=_answers_only(split.delays), failures=())
    ideal = replace(
        linked,
        topology=Topology(
            inner_bytes_per_us=ENDLESS_BYTES_PER_US,
            egress_bytes_per_us=ENDLESS_BYTES_PER_US,
            ingress_bytes_per_us=ENDLESS_BYTES_PER_US,
            latency_us=0.0,
        ),
    )
    delayed = replace(linked, delays=split.delays)
    steps = [ideal, linked, delayed]
    return [*steps, replace(delayed, failures=split.failures)] if split.failures else steps


def _answers_only(delays: Delays) -> Delays:
    """The gateway stands before either side; messages between workers are the split's own."""
    return msgspec.structs.replace(delays, control_us=0.0)


def _run(
    side: Side, deployment: Deployment, trace: FastWorkload, cell: Cell, ask: MarginAsk, seed: int
) -> FastResult:
    share = msgspec.structs.replace(cell, rate_per_s=cell.rate_per_s / side.num_cells)
    return simulate_fast(deployment, share.workload(trace, ask.num_requests, seed))


def _apart(colocated: FastResult, steps: list[FastResult], rule: Rule) -> NetMargin:
    times = [_mean_us(one, rule) for one in (colocated, *steps)]
    exposed, route = times[2] - times[1], times[3] - times[2]
    failure = times[4] - times[3] if len(times) > 4 else 0.0
    # A cost that shifts steps a little may save some: that is part of the interference then.
    return NetMargin(
        interference_saved_us=times[0] - times[1] - min(0.0, exposed) - min(0.0, failure),
        exposed_transfer_us=max(0.0, exposed),
        route_delta_us=route,
        failure_penalty_us=max(0.0, failure),
    )


def _mean_us(result: FastResult, rule: Rule) -> float:
    """Over the counted requests that completed; endless if none did."""
    chosen = counted(result, rule) & result.is_completed
    return float(np.mean(result.e2e_us[chosen])) if chosen.any() else math.inf


def _mean(parts: list[NetMargin]) -> NetMargin:
    def mean(name: str) -> float:
        return math.fsum(getattr(one, name) for one in parts) / len(parts)

    return NetMargin(
        interference_saved_us=mean("interference_saved_us"),
        exposed_transfer_us=mean("exposed_transfer_us"),
        route_delta_us=mean("route_delta_us"),
        failure_penalty_us=mean("failure_penalty_us"),
    )
