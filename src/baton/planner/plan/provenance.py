"""Where the step times are from, and what is known of their error."""

from collections.abc import Sequence

from baton.hardware.profile_predictor import ProfilePredictor
from baton.planner.placement.found import Arm
from baton.planner.plan.at_rate import AtRate
from baton.planner.plan.inputs import Inputs
from baton.planner.plan.result import Provenance

KNOWN: dict[str, tuple[float, str]] = {
    "distserve": (
        0.05,
        "the authors' own fits; their simulator with them is within 2 points of measured "
        "attainment (DistServe, table 2)",
    ),
    "splitwise": (
        0.03,
        "interpolated measurements; the authors give a mean error below 3 % (Splitwise, IV-B)",
    ),
    "dynamo": (0.1, "interpolated measurements of one engine and date; no error was published"),
    "layers": (
        0.03,
        "layer timings of one engine and date; means of two measured runs come out within 2 % "
        "(docs/truth.md)",
    ),
    "operators": (
        0.2,
        "composed from operators timed one by one; without fitted efficiencies the median TPOT of "
        "3,395 measured deployments is 21 % off (docs/predict.md)",
    ),
    "profiled": (0.2, "composed from operators timed one by one; no deployment was compared"),
    "roofline": (
        0.3,
        "a bound from data sheets with typical efficiencies; nothing of this model was measured "
        "here, so the verdict is a first guess",
    ),
}
"""A share of the step time that predictions are commonly off by, and why."""
UNKNOWN = (0.3, "nothing is known of its error")


def provenance_of(inputs: Inputs, arms: Sequence[Arm], measured: Sequence[AtRate]) -> Provenance:
    """Of the step times that the arms were simulated with."""
    predictor = inputs.choice.predictor
    share, text = _error(predictor)
    curves = [group.curves for arm in arms for group in arm.deployment.groups]
    return Provenance(
        predictor=predictor.name,
        reason=inputs.choice.reason,
        passed_over=inputs.choice.passed_over,
        sources=tuple(dict.fromkeys(one.source for one in curves)),
        is_extrapolated=any(one.is_extrapolated for one in curves)
        or any(at.extrapolated_share > 0 for at in measured),
        error=text,
        error_share=share,
    )


def _error(predictor: object) -> tuple[float, str]:
    if isinstance(predictor, ProfilePredictor):
        errors = predictor.profile.errors
        shown = ", ".join(
            f"{phase} {one.median:.0%} median and {one.p90:.0%} p90"
            for phase, one in errors.items()
        )
        text = f"steps that its fit has not seen: {shown} ({predictor.profile.num_points} measured)"
        return max((one.p90 for one in errors.values()), default=UNKNOWN[0]), text
    name = str(getattr(predictor, "name", "")).partition("-")[0]
    return KNOWN.get(name, UNKNOWN)
