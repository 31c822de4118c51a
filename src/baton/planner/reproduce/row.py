"""One published figure beside ours, and whether that is near enough."""

from collections.abc import Sequence

import msgspec

from baton.goodput.interval import Estimate
from baton.goodput.student import student_mean

REPRODUCTION = "reproduction"
"""Workload, targets, baseline and machine counts are the published ones."""
SHAPE = "shape check"
"""Something differs (`why` says what), so signs and orders are compared, not figures."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds are frozen before a run. `met` None: a figure to look at, which judges nothing."""

    target_id: str
    """Which result: r1, r7 and so on."""
    what: str
    target: str
    """As it was published, with its unit."""
    tolerance: str
    measured: str
    interval: str
    """Over seeds; or why there is none."""
    met: bool | None
    why: str = ""
    """Conditions, and for a miss its reason; a miss without one is a failure of the run."""
    kind: str = REPRODUCTION

    @property
    def verdict(self) -> str:
        """For tables."""
        return "" if self.met is None else "met" if self.met else "NOT MET"


def error_row(target_id: str, error: Exception) -> Row:
    """Of a reproduction that could not be run: a miss that nothing explains."""
    return Row(
        target_id=target_id,
        what="could not be run",
        target="-",
        tolerance="-",
        measured=f"{type(error).__name__}: {error}",
        interval="-",
        met=False,
    )


def number_row(
    target_id: str,
    what: str,
    *,
    target: str,
    measured: Sequence[float] | Estimate | float,
    low: float | None = None,
    high: float | None = None,
    tolerance: str = "",
    unit: str = "",
    why: str = "",
    kind: str = REPRODUCTION,
) -> Row:
    """A figure, which is met within the bounds that are set.

    `measured` is one value for each seed, an estimate with its interval, or a value that no seed
    enters.
    """
    estimate = _estimate(measured)
    value = measured if isinstance(measured, int | float) else estimate.value if estimate else 0.0
    above = low is None or value >= low
    within = above and (high is None or value <= high)
    is_judged = low is not None or high is not None
    miss = "" if within else f"; misses by {_distance(value, low, high):.3g} {unit}".rstrip()
    return Row(
        target_id=target_id,
        what=what,
        target=target,
        tolerance=tolerance or _accepted(low, high, unit),
        measured=f"{value:.4g} {unit}".rstrip(),
        interval=_interval(estimate) + miss,
        met=within if is_judged else None,
        why=why,
        kind=kind,
    )


def fact_row(
    target_id: str,
    what: str,
    *,
    target: str,
    measured: str,
    met: bool | None,
    tolerance: str = "exact",
    interval: str = "no seed enters",
    why: str = "",
    kind: str = REPRODUCTION,
) -> Row:
    """A plan, an order or a sign: what has no distance."""
    return Row(
        target_id=target_id,
        what=what,
        target=target,
        tolerance=tolerance,
        measured=measured,
        interval=interval,
        met=met,
        why=why,
        kind=kind,
    )


def _estimate(measured: Sequence[float] | Estimate | float) -> Estimate | None:
    if isinstance(measured, Estimate):
        return measured
    return None if isinstance(measured, int | float) else student_mean(list(measured))


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "no seed enters"
    return f"[{estimate.low:.4g}, {estimate.high:.4g}], n = {estimate.num}"


def _accepted(low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return "-"
    if low is None:
        return f"<= {high:.4g} {unit}".rstrip()
    if high is None:
        return f">= {low:.4g} {unit}".rstrip()
    return f"{low:.4g} .. {high:.4g} {unit}".rstrip()


def _distance(value: float, low: float | None, high: float | None) -> float:
    return low - value if low is not None and value < low else value - (high or 0.0)
