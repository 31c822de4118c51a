"""The verdict where nothing meets the targets, or nothing serves the rate: what binds."""

import math
from collections.abc import Sequence

from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract
from baton.planner.plan.fit import Fit
from baton.planner.plan.verdict import (
    CLOCKS,
    MEMORY,
    US_PER_MS,
    Margin,
    Outcome,
    Standing,
    Verdict,
    binding_of,
    per_s,
    times_target,
)


def nothing_meets(
    arms: Sequence[Standing],
    margin: Margin,
    asked: str,
    targets: SLOTargets,
    contract: Contract,
    gpus: int,
    fit: Fit | None,
) -> Verdict:
    """Even requests that are alone fail: what does it, and what the closest plan reaches."""
    closest = min(arms, key=lambda arm: _worst(arm, targets))
    binding = binding_of(closest.answer, closest.at, targets)
    if binding == MEMORY:
        text = _too_long(fit)
    elif contract is Contract.JOINT and _worst(closest, targets) <= 1:
        text = _apart(closest)
    else:
        text = _too_slow(closest, binding, targets)
    sentence = f"Nothing meets {asked} on {gpus} GPUs: {text}."
    return Verdict(outcome=Outcome.NOTHING, sentence=sentence, margin=margin, binding=binding)


def nothing_serves(
    arms: Sequence[Standing], margin: Margin, asked: str, gpus: int, rate_per_s: float
) -> Verdict:
    """The rate is too high for so many GPUs."""
    best = max(arms, key=lambda arm: arm.goodput_per_s)
    needed = best.num_gpus * max(2, math.ceil(rate_per_s / best.goodput_per_s))
    clock = best.answer.binding
    sentence = (
        f"Nothing serves {rate_per_s:g} requests/s within {asked} on {gpus} GPUs: "
        f"{CLOCKS[clock]} binds; closest is {best.text} with {per_s(best.goodput_per_s)}/s, and "
        f"at most {needed} GPUs of it would do."
    )
    return Verdict(outcome=Outcome.NOTHING, sentence=sentence, margin=margin, binding=clock)


def _worst(arm: Standing, targets: SLOTargets) -> float:
    return math.inf if arm.at is None else max(times_target(arm.at, targets).values())


def _too_slow(closest: Standing, clock: str, targets: SLOTargets) -> str:
    assert closest.at is not None
    target_ms = ((targets.ttft_us if clock == "ttft" else targets.tpot_us) or 0) / US_PER_MS
    need_ms = times_target(closest.at, targets)[clock] * target_ms
    return (
        f"{CLOCKS[clock]} binds; closest is {closest.text}, which needs {need_ms:.3g} ms for "
        f"{100 * targets.attainment:.6g}% of the requests even when they are alone"
    )


def _apart(closest: Standing) -> str:
    """Each clock is met by enough requests, and by different ones."""
    at = closest.at
    assert at is not None
    return (
        f"each clock by itself is met often enough ({at.ttft_met.value:.1%} and "
        f"{at.tpot_met.value:.1%} of requests that are alone), both at once by "
        f"{at.joint_met.value:.1%}; closest is {closest.text}"
    )


def _too_long(fit: Fit | None) -> str:
    """Requests that no memory holds miss every clock, however fast a plan is."""
    if fit is None or not fit.num_long:
        return "K/V memory binds: too many requests fit into no worker"
    return (
        f"K/V memory binds, no clock does: {fit}, so that {fit.share:.1%} can be served at most; "
        f"{fit.remedy}"
    )
