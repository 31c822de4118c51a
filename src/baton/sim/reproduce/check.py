"""One published figure beside what was measured here, and whether that is near enough."""

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Met when `low <= measured <= high`; bounds are those of the target, frozen before any run.

    Without bounds it is a figure to look at, and judges nothing.
    """

    target: str
    """Which result: r16, reuse and so on."""
    what: str
    published: str
    measured: float
    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def is_judged(self) -> bool:
        """There is something to meet."""
        return self.low is not None or self.high is not None

    @property
    def met(self) -> bool:
        """Within the bounds that are set."""
        above = self.low is None or self.measured >= self.low
        return above and (self.high is None or self.measured <= self.high)

    @property
    def accepted(self) -> str:
        """The bounds as text."""
        if self.low is None and self.high is None:
            return "-"
        if self.low is None:
            return f"<= {self.high:.4g}"
        if self.high is None:
            return f">= {self.low:.4g}"
        return f"{self.low:.4g} .. {self.high:.4g}"

    @property
    def verdict(self) -> str:
        """For the table."""
        if not self.is_judged:
            return ""
        return "met" if self.met else "NOT met"


def near(
    target: str, what: str, published: float, measured: float, tolerance: float, unit: str = ""
) -> Check:
    """A figure that has to come out as published, give or take."""
    return Check(
        target=target,
        what=what,
        published=f"{published:g}{unit}",
        measured=measured,
        low=published - tolerance,
        high=published + tolerance,
        unit=unit,
    )
