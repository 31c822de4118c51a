"""What a verdict is made of: both arms, the ratio between them, and what was asked in words."""

import math
from enum import StrEnum

import msgspec

from baton.goodput.interval import Estimate
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.planner.goodput.answer import Contract, GoodputAnswer
from baton.planner.plan.at_rate import AtRate

LEVEL = 0.95
US_PER_MS = 1e3
MEMORY = "memory"
CLOCKS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", MEMORY: "K/V memory"}
"""What binds."""
CONTRACTS = {
    Contract.PHASES: "each clock by itself for {share} of the requests",
    Contract.JOINT: "both at once for {share} of the requests",
}


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
    num_gpus: int
    at: AtRate | None = None
    """At the rate that was asked for, else at its goodput, else where requests are alone."""

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
    """What stops the winner, or the closest plan: a clock, or memory."""


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
    below = {one.seed: one.rate_per_s * _scale(colocated) for one in colocated.seeds}
    above = {one.seed: one.rate_per_s * _scale(split) for one in split.seeds}
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


def _scale(answer: GoodputAnswer) -> float:
    """Seeds' rates are those of one part of an arm; its own rate is that of all parts and seeds.

    So scaled, the ratio of two arms is that of their goodputs, whatever its interval.
    """
    logs = [math.log(one.rate_per_s) for one in answer.seeds]
    return answer.rate.value / math.exp(math.fsum(logs) / len(logs))


def _serves(answer: GoodputAnswer | None) -> bool:
    return answer is not None and answer.rate.value > 0 and bool(answer.seeds)


def asked_text(targets: SLOTargets, contract: Contract) -> str:
    """Both clocks, the share, and whose share it is."""
    ttft, tpot = targets.ttft_us or 0, targets.tpot_us or 0
    share = f"{100 * targets.attainment:.6g}%"
    whose = CONTRACTS[contract].format(share=share)
    return f"TTFT {ttft / US_PER_MS:g} ms and TPOT {tpot / US_PER_MS:g} ms ({whose})"


def per_s(rate: float) -> str:
    """Three digits, and never an exponent."""
    return f"{rate:.0f}" if rate >= 1000 else f"{rate:.3g}"


def times_target(at: AtRate, targets: SLOTargets) -> dict[str, float]:
    """Within how many times each target the asked share of the requests is."""
    return {
        name: math.inf if found.share_ms is None else found.share_ms * US_PER_MS / (target or 1)
        for name, found, target in (
            ("ttft", at.ttft, targets.ttft_us),
            ("tpot", at.tpot, targets.tpot_us),
        )
    }


def binding_of(answer: GoodputAnswer, at: AtRate | None, targets: SLOTargets) -> str:
    """What fails first: above its goodput, or of requests that are alone.

    Requests that fit into no worker miss every clock, and none of them is the reason.
    """
    if answer.rate.value > 0 or at is None:
        return answer.binding
    times = times_target(at, targets)
    if math.isinf(min(times.values())):
        return MEMORY
    return max(times, key=lambda name: times[name])
