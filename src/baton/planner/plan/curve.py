"""Both arms over shared rates: attainment by rate, and goodput by the scale of the targets."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from baton.goodput.curve import goodput_at
from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract
from baton.planner.goodput.attained import Rule, attain, summed
from baton.planner.goodput.draws import Draws, draw
from baton.planner.placement.found import Arm
from baton.planner.plan.at_rate import AtRate, summed_up
from baton.planner.plan.result import ScalePoint
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

SHARES = (0.25, 0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.3, 1.6)
"""Of the arms' goodputs: dense where attainment falls."""
SCALES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How each rate is simulated."""

    targets: SLOTargets
    contract: Contract
    draws: Draws
    rule: Rule
    seeds: tuple[int, ...]
    num_requests: int


class ArmCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One arm."""

    points: tuple[AtRate, ...]
    shares: Mapping[float, tuple[float, ...]]
    """The contract's share at each rate, by the scale of the targets."""


def shared_rates(goodputs: Sequence[float]) -> list[float]:
    """Around the goodput of each arm, ascending, none within a twentieth of another."""
    wanted = sorted(share * rate for rate in goodputs if rate > 0 for share in SHARES)
    kept: list[float] = []
    for rate in wanted:
        if not kept or rate > 1.05 * kept[-1]:
            kept.append(rate)
    return kept


def arm_curve(
    arm: Arm, workload: FastWorkload, rates: Sequence[float], sampling: Sampling
) -> ArmCurve:
    """Every rate with every seed, each simulated once and judged at every scale."""
    points = []
    shares: dict[float, list[float]] = {scale: [] for scale in SCALES}
    drawn = [draw(workload, sampling.num_requests, seed, sampling.draws) for seed in sampling.seeds]
    for rate in rates:
        results = [
            simulate_fast(arm.deployment, one.at_rate(rate / arm.num_cells)) for one in drawn
        ]
        points.append(
            summed_up(
                arm,
                results,
                rate,
                sampling.targets,
                sampling.contract,
                sampling.rule,
                sampling.seeds,
            )
        )
        for scale, found in shares.items():
            targets = scaled(sampling.targets, scale)
            attained = summed([attain(result, targets, sampling.rule) for result in results])
            found.append(sampling.contract.share(attained))
    return ArmCurve(
        points=tuple(points), shares={scale: tuple(one) for scale, one in shares.items()}
    )


def scaled(targets: SLOTargets, scale: float) -> SLOTargets:
    """Both clocks so many times as long."""
    return msgspec.structs.replace(
        targets,
        ttft_us=max(1, round((targets.ttft_us or 1) * scale)),
        tpot_us=max(1, round((targets.tpot_us or 1) * scale)),
    )


def by_scale(
    rates: Sequence[float], curves: Mapping[str, ArmCurve], attainment: float
) -> tuple[ScalePoint, ...]:
    """Goodput between the simulated rates by linear interpolation."""

    def goodput(name: str, scale: float) -> float | None:
        curve = curves.get(name)
        return None if curve is None else goodput_at(rates, curve.shares[scale], attainment)

    return tuple(
        ScalePoint(
            scale=scale, colocated=goodput("colocated", scale), split=goodput("split", scale)
        )
        for scale in SCALES
    )


def crossings(points: Sequence[ScalePoint]) -> list[float]:
    """Scales between which the better arm changes, as geometric means."""
    found, last = [], None
    for point in points:
        if point.colocated is None or point.split is None or point.colocated == point.split:
            continue
        now = (point.scale, point.split > point.colocated)
        if last is not None and last[1] != now[1]:
            found.append(float(np.sqrt(last[0] * now[0])))
        last = now
    return found
