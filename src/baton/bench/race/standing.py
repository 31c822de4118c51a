"""Who won: goodput per core with intervals, the net margin taken apart, and one sentence."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from baton.bench.race.arm import Arm
from baton.bench.race.calibration import Calibration
from baton.bench.race.cells import Cell
from baton.bench.race.contest import Contest
from baton.bench.race.phases import MeanPhases, mean_phases
from baton.goodput.curve import GoodputCurve, goodput_curves, goodput_ratio
from baton.goodput.interval import Estimate
from baton.goodput.margin import MarginVerdict, NetMargin, decide
from baton.goodput.slo import SLOTargets

SPLIT = "split"
_TPOT_SCALES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)


class Margin(msgspec.Struct, frozen=True, kw_only=True):
    """The split arm against the best colocated one at one rate, mean phases of both."""

    rate: float
    rival: str
    split: MeanPhases
    colocated: MeanPhases
    verdict: MarginVerdict

    @property
    def prefill_delta_us(self) -> float:
        """What 0x0FD leaves out: prompts that queue and compute on fewer cores."""
        return self.split.prefill_us - self.colocated.prefill_us


class ScalePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Goodput of every arm with another TPOT target, from the same measurements."""

    tpot_scale: float
    goodputs: dict[str, float]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one contest."""

    contest: str
    title: str
    targets: SLOTargets
    calibration: Calibration
    curves: dict[str, GoodputCurve]
    per_core: dict[str, Estimate]
    best_colocated: str
    ratio: Estimate | None
    """Split over the best colocated arm; None when the latter passes at no measured rate."""
    ratio_is_at_least: float
    """With no ratio: the split's goodput over the lowest rate, at which the others fail."""
    ttft_attainment: dict[str, dict[float, float]]
    tpot_attainment: dict[str, dict[float, float]]
    margins: tuple[Margin, ...]
    scales: tuple[ScalePoint, ...]
    sentence: str


def stand(
    contest: Contest,
    arms: Sequence[Arm],
    cells: Sequence[Cell],
    targets: SLOTargets,
    calibration: Calibration,
    *,
    safety_margin_us: float,
) -> Standing:
    """Judge the cells of a contest."""
    met = _met(cells, targets)
    curves = goodput_curves(met, targets.attainment)
    cores = {arm.name: arm.num_cores for arm in arms}
    colocated = [arm.name for arm in arms if not arm.split]
    # Ties, as when all fail, go to who attains more.
    best = max(
        colocated, key=lambda name: (curves[name].goodput.value, sum(curves[name].attainments))
    )
    ratio = goodput_ratio(met, SPLIT, best, targets.attainment)
    phases = {
        name: {rate: _marginal(cells, name, rate, targets) for rate in curves[name].rates}
        for name in met
    }
    standing = Standing(
        contest=contest.name,
        title=contest.title,
        targets=targets,
        calibration=calibration,
        curves=curves,
        per_core={name: c.goodput.times(1 / cores[name]) for name, c in curves.items()},
        best_colocated=best,
        ratio=ratio,
        ratio_is_at_least=curves[SPLIT].goodput.value / min(curves[best].rates),
        ttft_attainment={name: {r: p[0] for r, p in by.items()} for name, by in phases.items()},
        tpot_attainment={name: {r: p[1] for r, p in by.items()} for name, by in phases.items()},
        margins=_margins(cells, best, curves[SPLIT].rates, phases, targets, safety_margin_us),
        scales=_scales(cells, targets),
        sentence="",
    )
    return msgspec.structs.replace(standing, sentence=sentence_of(standing))


def sentence_of(standing: Standing) -> str:
    """The verdict."""
    split, rival = standing.curves[SPLIT], standing.curves[standing.best_colocated]
    target = f"{standing.targets.attainment:.0%} within {standing.targets} ms"
    if standing.ratio is None:
        if split.is_below_range:
            return (
                f"Neither: no arm keeps {target} even at {min(split.rates):.2f} requests/s on the "
                f"{standing.contest} workload; loosen the targets or add cores."
            )
        return (
            f"Split: it keeps {target} up to {split.goodput.value:.2f} requests/s on the "
            f"{standing.contest} workload, and no colocated arm does at {min(split.rates):.2f}."
        )
    ratio = standing.ratio
    bound = "at least " if split.is_above_range else ""
    how = (
        f"{bound}{split.goodput.value:.2f} against {rival.goodput.value:.2f} requests/s of "
        f"{standing.best_colocated} at {target}, ratio {bound}{ratio.value:.2f} "
        f"[{ratio.low:.2f}, {ratio.high:.2f}], on the {standing.contest} workload"
    )
    if ratio.low > 1:
        return f"Split: {how}."
    if ratio.high < 1:
        return f"Do not split: {how}."
    return f"No clear winner: {how}; the interval contains 1, so stay colocated."


def _met(cells: Sequence[Cell], targets: SLOTargets) -> dict[str, dict[float, list[bool]]]:
    met: dict[str, dict[float, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for cell in sorted(cells, key=lambda cell: cell.repetition):
        met[cell.arm][cell.rate] += cell.met(targets)
    return {arm: dict(by_rate) for arm, by_rate in met.items()}


def _marginal(
    cells: Sequence[Cell], arm: str, rate: float, targets: SLOTargets
) -> tuple[float, float]:
    """TTFT and TPOT attainment, each for itself, over the same denominator as the joint one."""
    here = [cell for cell in cells if cell.arm == arm and cell.rate == rate]
    judged = [one for cell in here for one in cell.judged(targets)]
    ttft, tpot = sum(one.ttft for one in judged), sum(one.tpot for one in judged)
    return ttft / len(judged), tpot / len(judged)


def _margins(
    cells: Sequence[Cell],
    best: str,
    rates: Sequence[float],
    attained: dict[str, dict[float, tuple[float, float]]],
    targets: SLOTargets,
    safety_margin_us: float,
) -> tuple[Margin, ...]:
    margins = []
    for rate in rates:
        split = [p for c in cells if c.arm == SPLIT and c.rate == rate for p in c.phases]
        colocated = [p for c in cells if c.arm == best and c.rate == rate for p in c.phases]
        if not split or not colocated:
            continue
        ours, theirs = mean_phases(split), mean_phases(colocated)
        margin = NetMargin(
            interference_saved_us=theirs.decode_us - ours.decode_us,
            exposed_transfer_us=ours.exposed_us,
            route_delta_us=ours.route_us - theirs.route_us,
            failure_penalty_us=max(0.0, ours.lost_us - theirs.lost_us),
        )
        ttft, tpot = attained[SPLIT][rate]
        verdict = decide(
            margin,
            safety_margin_us,
            ttft_passes=ttft >= targets.attainment,
            tpot_passes=tpot >= targets.attainment,
        )
        margins.append(Margin(rate=rate, rival=best, split=ours, colocated=theirs, verdict=verdict))
    return tuple(margins)


def _scales(cells: Sequence[Cell], targets: SLOTargets) -> tuple[ScalePoint, ...]:
    """X4: how the winner changes with the TPOT target.

    A rate that was skipped as hopeless under the target stays a miss under a looser one, so looser
    scales understate the arms that were skipped.
    """
    points = []
    for scale in _TPOT_SCALES:
        assert targets.tpot_us is not None
        scaled = msgspec.structs.replace(targets, tpot_us=round(targets.tpot_us * scale))
        curves = goodput_curves(_met(cells, scaled), targets.attainment)
        points.append(
            ScalePoint(tpot_scale=scale, goodputs={n: c.goodput.value for n, c in curves.items()})
        )
    return tuple(points)
