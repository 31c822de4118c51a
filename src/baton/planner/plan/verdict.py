"""Which arm wins, by how much, and in one sentence."""

import math
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from baton.goodput.interval import Estimate
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.plan.at_rate import AtRate

LEVEL = 0.95
CLOCKS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


class Outcome(StrEnum):
    """What to do."""

    SPLIT = "split"
    COLOCATE = "colocate"
    NO_DIFFERENCE = "no difference within the error"
    NOTHING = "nothing meets the targets"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict needs of one arm."""

    text: str
    answer: GoodputAnswer
    at: AtRate | None = None
    """At the rate that was asked for."""

    @property
    def goodput_per_s(self) -> float:
        """0 when it meets the targets at no rate."""
        return self.answer.rate.value


class Margin(msgspec.Struct, frozen=True, kw_only=True):
    """Goodput of the split over that of the best colocated arm; None without one to divide by."""

    ratio: Estimate | None
    safety: float

    @property
    def is_split_worth_it(self) -> bool:
        """Even the low end of the interval exceeds the safety margin."""
        return self.ratio is not None and self.ratio.low > 1 + self.safety

    @property
    def is_told_apart(self) -> bool:
        """The interval leaves equality out."""
        return self.ratio is not None and not self.ratio.low <= 1 <= self.ratio.high


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "should I split"."""

    outcome: Outcome
    sentence: str
    margin: Margin
    binding: str
    """The clock that stops the winner, or the closest plan."""


def margin_of(
    colocated: GoodputAnswer | None, split: GoodputAnswer | None, safety: float
) -> Margin:
    """Seeds are pairs: both arms answered the same requests.

    The interval is Student's over the seeds' log ratios, and never narrower than the grid of rates
    that both answers lie on.
    """
    if not _serves(colocated) or not _serves(split):
        return Margin(ratio=None, safety=safety)
    assert colocated is not None and split is not None
    below = {one.seed: one.rate_per_s * _cells(colocated) for one in colocated.seeds}
    above = {one.seed: one.rate_per_s * _cells(split) for one in split.seeds}
    logs = [math.log(above[seed] / below[seed]) for seed in above if seed in below]
    grid = math.log1p(max(colocated.relative_precision, split.relative_precision))
    if len(logs) < 2:
        return Margin(ratio=None, safety=safety)
    found = student_mean(logs, LEVEL)
    half = max(found.high - found.value, grid)
    ratio = Estimate(
        value=math.exp(found.value),
        low=math.exp(found.value - half),
        high=math.exp(found.value + half),
        num=len(logs),
        level=LEVEL,
    )
    return Margin(ratio=ratio, safety=safety)


def _cells(answer: GoodputAnswer) -> float:
    """Seeds' rates are those of one part of an arm; its own rate is that of all parts."""
    mean = sum(one.rate_per_s for one in answer.seeds) / len(answer.seeds)
    return answer.rate.value / mean


def _serves(answer: GoodputAnswer | None) -> bool:
    return answer is not None and answer.rate.value > 0 and bool(answer.seeds)


def judge(
    colocated: Standing | None,
    split: Standing | None,
    *,
    targets: SLOTargets,
    gpus: int,
    safety: float,
    rate_per_s: float | None,
) -> Verdict:
    """The verdict; at least one arm must have been searched."""
    arms = [arm for arm in (colocated, split) if arm is not None]
    assert arms, "an empty space is refused before"
    margin = margin_of(
        colocated.answer if colocated else None, split.answer if split else None, safety
    )
    asked = f"{_times(targets)} for {targets.attainment:.0%}"
    if not any(arm.goodput_per_s > 0 for arm in arms):
        return _nothing(arms, margin, asked, targets, gpus)
    if rate_per_s is not None and not any(arm.at is not None and arm.at.passes for arm in arms):
        return _too_few(arms, margin, asked, gpus, rate_per_s)
    return _between(colocated, split, margin, asked, rate_per_s)


def _between(
    colocated: Standing | None,
    split: Standing | None,
    margin: Margin,
    asked: str,
    rate_per_s: float | None,
) -> Verdict:
    able = [arm for arm in (colocated, split) if arm is not None and _able(arm, rate_per_s)]
    if len(able) == 1:
        outcome = Outcome.SPLIT if able[0] is split else Outcome.COLOCATE
        other = colocated if able[0] is split else split
        return _only(able[0], other, outcome, margin, asked, rate_per_s)
    assert colocated is not None and split is not None
    ratio = margin.ratio
    assert ratio is not None, "both serve, so their seeds can be compared"
    shown = f"{ratio.value:.2f} times [{ratio.low:.2f}, {ratio.high:.2f}]"
    if margin.is_split_worth_it:
        text = (
            f"Split: {split.text} serves {split.goodput_per_s:.3g} requests/s within {asked}, "
            f"{shown} what the best colocated plan does ({colocated.text})"
        )
        return _verdict(Outcome.SPLIT, text, margin, split)
    if not margin.is_told_apart:
        text = (
            f"No difference within the error: split does {shown} what colocated does; colocate, "
            f"which is simpler: {colocated.text} serves {colocated.goodput_per_s:.3g} requests/s "
            f"within {asked}"
        )
        return _verdict(Outcome.NO_DIFFERENCE, text, margin, colocated)
    why = (
        f"split does {shown} that ({split.text})"
        if ratio.value < 1
        else f"splitting gives {shown} that ({split.text}), which does not surely exceed the "
        f"safety margin of {margin.safety:.0%}"
    )
    text = (
        f"Colocate: {colocated.text} serves {colocated.goodput_per_s:.3g} requests/s within "
        f"{asked}; {why}"
    )
    return _verdict(Outcome.COLOCATE, text, margin, colocated)


def _able(arm: Standing, rate_per_s: float | None) -> bool:
    return arm.goodput_per_s > 0 and (rate_per_s is None or (arm.at is not None and arm.at.passes))


def _only(
    winner: Standing,
    other: Standing | None,
    outcome: Outcome,
    margin: Margin,
    asked: str,
    rate_per_s: float | None,
) -> Verdict:
    word = "Split" if outcome is Outcome.SPLIT else "Colocate"
    at = f"at {rate_per_s:g}/s" if rate_per_s is not None else "at any rate"
    lacks = "cannot be placed"
    if other is not None:
        lacks = f"({other.text}) does not {at}: its {CLOCKS[other.answer.binding]} binds"
    text = (
        f"{word}: {winner.text} meets {asked} "
        f"{at if rate_per_s is not None else f'up to {winner.goodput_per_s:.3g} requests/s'}; "
        f"{'colocated' if outcome is Outcome.SPLIT else 'split'} {lacks}"
    )
    return _verdict(outcome, text, margin, winner)


def _nothing(
    arms: Sequence[Standing], margin: Margin, asked: str, targets: SLOTargets, gpus: int
) -> Verdict:
    """Even requests that are alone fail: the clock that does, and what the closest plan reaches."""
    closest = min(arms, key=lambda arm: max(_times_target(arm, targets).values()))
    times = _times_target(closest, targets)
    clock = max(times, key=lambda name: times[name])
    target_ms = (targets.ttft_us if clock == "ttft" else targets.tpot_us) or 0
    text = (
        f"Nothing meets {asked} on {gpus} GPUs: {CLOCKS[clock]} binds; closest is {closest.text}, "
        f"whose requests need {times[clock] * target_ms / 1000:.3g} ms at p90 even when they are "
        f"alone"
    )
    return Verdict(outcome=Outcome.NOTHING, sentence=f"{text}.", margin=margin, binding=clock)


def _times_target(arm: Standing, targets: SLOTargets) -> dict[str, float]:
    """p90 of each clock over its target; without requests that were served nothing is near."""
    at = arm.at
    ttft = at.ttft.p90_ms if at is not None else None
    tpot = at.tpot.p90_ms if at is not None else None
    return {
        "ttft": math.inf if ttft is None else ttft * 1000 / (targets.ttft_us or 1),
        "tpot": 0.0 if tpot is None else tpot * 1000 / (targets.tpot_us or 1),
    }


def _too_few(
    arms: Sequence[Standing], margin: Margin, asked: str, gpus: int, rate_per_s: float
) -> Verdict:
    best = max(arms, key=lambda arm: arm.goodput_per_s)
    needed = math.ceil(rate_per_s / best.answer.per_gpu.value)
    clock = best.answer.binding
    text = (
        f"Nothing serves {rate_per_s:g} requests/s within {asked} on {gpus} GPUs: "
        f"{CLOCKS[clock]} binds; closest is {best.text} with {best.goodput_per_s:.3g}/s, and about "
        f"{needed} GPUs of it would do"
    )
    return Verdict(outcome=Outcome.NOTHING, sentence=f"{text}.", margin=margin, binding=clock)


def _verdict(outcome: Outcome, text: str, margin: Margin, winner: Standing) -> Verdict:
    return Verdict(
        outcome=outcome, sentence=f"{text}.", margin=margin, binding=winner.answer.binding
    )


def _times(targets: SLOTargets) -> str:
    ttft, tpot = targets.ttft_us or 0, targets.tpot_us or 0
    return f"TTFT {ttft / 1000:g} ms and TPOT {tpot / 1000:g} ms"
