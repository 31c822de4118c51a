"""X1 to X4 of a race beside their accept lines (docs/effects.md has the others)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from baton.bench.effects.effect import Effect
from baton.bench.race.result import Prediction
from baton.bench.race.standing import SPLIT, Standing
from baton.bench.race.streams import StreamGaps

DECODE_ONLY = "decode-only"
PREFILL_FIRST = "colocated"
STALL_RATIO = 5.0
ISOLATION_RATIO = 1.5
FIDELITY_POINTS = 5.0
_STALL_LINE = f"colocated / split >= {STALL_RATIO:g}; split / decode-only <= {ISOLATION_RATIO:g}"
_SLACK = 0.95
"""A step against the trend that is within 5 % is noise, not a trend."""


def _p99s(rounds: Mapping[str, Sequence[StreamGaps]], arm: str) -> list[float]:
    return [one.p99_us for one in rounds[arm]]


def stall(rounds: Mapping[str, Sequence[StreamGaps]]) -> Effect:
    """X1: ratios taken within each repetition, then their medians."""
    colocated, split = _p99s(rounds, PREFILL_FIRST), _p99s(rounds, SPLIT)
    alone = _p99s(rounds, DECODE_ONLY)
    stalled = median(a / d for a, d in zip(colocated, split, strict=True))
    isolated = median(d / o for d, o in zip(split, alone, strict=True))
    return Effect(
        id="X1",
        title="Decode stall under a burst of long prompts",
        measured=(
            f"p99 gap of 3 live streams: colocated prefill-first {median(colocated) / 1e3:.0f} ms, "
            f"split {median(split) / 1e3:.0f} ms, decode-only beside a busy core "
            f"{median(alone) / 1e3:.0f} ms; ratios {stalled:.1f} and {isolated:.2f} "
            f"({len(split)} repetitions)"
        ),
        accept=_STALL_LINE,
        met=stalled >= STALL_RATIO and isolated <= ISOLATION_RATIO,
        figures={
            "colocated_p99_us": colocated,
            "split_p99_us": split,
            "decode_only_p99_us": alone,
            "stall_ratio": stalled,
            "isolation_ratio": isolated,
        },
    )


def no_streams() -> Effect:
    """X1 where nothing was measured."""
    return Effect(
        id="X1",
        title="Decode stall under a burst of long prompts",
        measured="left out: the streams were over before the burst, as with a very small model",
        accept=_STALL_LINE,
        met=None,
    )


def chunk_arm(budget: int) -> str:
    """Name of the arm of X2 with a token budget."""
    return f"chunks-{budget}"


def chunking(rounds: Mapping[str, Sequence[StreamGaps]], budgets: Sequence[int]) -> Effect:
    """X2: the gap grows with the budget, TTFT falls with it, and the gap lies between d and a."""
    names = [chunk_arm(budget) for budget in budgets]
    gaps = [median(_p99s(rounds, name)) for name in names]
    ttfts = [median(one.mean_ttft_us for one in rounds[name]) for name in names]
    rising = all(b >= a * _SLACK for a, b in pairwise(gaps))
    falling = all(b <= a / _SLACK for a, b in pairwise(ttfts))
    split, colocated = median(_p99s(rounds, SPLIT)), median(_p99s(rounds, PREFILL_FIRST))
    between = all(split <= gap <= colocated for gap in gaps)
    whole = median(one.mean_ttft_us for one in rounds[PREFILL_FIRST])
    pairs = ", ".join(
        f"{budget}: {gap / 1e3:.0f} / {ttft / 1e3:.0f}"
        for budget, gap, ttft in zip(budgets, gaps, ttfts, strict=True)
    )
    return Effect(
        id="X2",
        title="Chunking bounds the stall",
        measured=(
            f"p99 gap / mean TTFT of the burst in ms by token budget: {pairs}; whole prompts: "
            f"{colocated / 1e3:.0f} / {whole / 1e3:.0f}"
        ),
        accept="gap rises and TTFT falls with the budget (5 % slack); gap between split and whole",
        met=rising and falling and between,
        figures={"budgets": list(budgets), "p99_gap_us": gaps, "mean_ttft_us": ttfts},
    )


def splitting_can_lose(standing: Standing) -> Effect:
    """X3: on short prompts the split arm loses, reported with its size."""
    split, rival = standing.curves[SPLIT], standing.curves[standing.best_colocated]
    ours, theirs = split.goodput, rival.goodput
    return Effect(
        id="X3",
        title="Splitting can lose",
        measured=(
            f"{standing.contest}: split {ours.value:.2f} [{ours.low:.2f}, {ours.high:.2f}], "
            f"{standing.best_colocated} {theirs.value:.2f} [{theirs.low:.2f}, {theirs.high:.2f}] "
            f"requests/s at {standing.targets} ms"
        ),
        accept="goodput of the split < goodput of the best colocated arm",
        met=ours.value < theirs.value,
        figures={"split_per_s": ours.value, "best_colocated_per_s": theirs.value},
    )


def crossover(standing: Standing) -> Effect:
    """X4: where the winner changes as the TPOT target tightens; its absence is a result too."""
    winners = []
    for point in standing.scales:
        colocated = max(v for name, v in point.goodputs.items() if name != SPLIT)
        split = point.goodputs[SPLIT]
        winner = "split" if split > colocated else "colocated" if colocated > split else "neither"
        winners.append((point.tpot_scale, winner))
    decided = [winner for _, winner in winners if winner != "neither"]
    changes = sum(a != b for a, b in pairwise(decided))
    text = ", ".join(f"{scale:g}x {winner}" for scale, winner in winners)
    found = f"{changes} crossover(s)" if changes else "no crossover"
    return Effect(
        id="X4",
        title="Goodput against the scale of the TPOT target",
        measured=f"{standing.contest}: {found}; winner by scale: {text}",
        accept="the crossover, or its absence, is reported",
        met=True if decided else None,
        figures={"winners": {f"{scale:g}": winner for scale, winner in winners}},
    )


def advantage(standing: Standing) -> Effect:
    """The figure that a long-prompt workload is raced for."""
    ratio = standing.ratio
    value = ratio.value if ratio else standing.ratio_is_at_least
    bound = "at least " if standing.curves[SPLIT].is_above_range or not ratio else ""
    interval = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else ", no colocated arm passes"
    return Effect(
        id="G",
        title="Joint goodput, split over the best colocated arm",
        measured=(
            f"{standing.contest}: {bound}{value:.2f}{interval}; best colocated "
            f"{standing.best_colocated}"
        ),
        accept=">= 1.5",
        met=value >= 1.5,
        figures={"ratio": value},
    )


def fidelity(predictions: Sequence[Prediction]) -> Effect:
    """Attainment in the simulated host beside the measured one, in points (R6)."""
    apart = [100 * abs(one.predicted - one.measured) for one in predictions]
    worst = max(predictions, key=lambda one: abs(one.predicted - one.measured))
    mean = sum(apart) / len(apart)
    within = sum(points <= FIDELITY_POINTS for points in apart)
    ttft = median(one.ttft_error for one in predictions)
    tpot = median(one.tpot_error for one in predictions)
    return Effect(
        id="S",
        title="Simulated against measured joint attainment",
        measured=(
            f"mean {mean:.1f}, median {median(apart):.1f} points over {len(apart)} pairs of arm "
            f"and rate, {within} within {FIDELITY_POINTS:g}; worst {max(apart):.0f} "
            f"({worst.arm}, {worst.contest} at {worst.rate:.2f}/s: measured "
            f"{worst.measured:.0%}, simulated {worst.predicted:.0%}); of single requests, median "
            f"relative error of TTFT {ttft:.0%}, of TPOT {tpot:.0%}"
        ),
        accept=f"mean <= {FIDELITY_POINTS:g} points",
        met=mean <= FIDELITY_POINTS,
        figures={"points_apart": apart},
    )
