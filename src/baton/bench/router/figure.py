"""One measured figure beside the limit that it is judged by."""

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its limit; `is_floor` where more is better."""

    name: str
    value: float
    limit: float
    unit: str
    is_floor: bool = False

    @property
    def is_met(self) -> bool:
        """On the right side of the limit."""
        return self.value >= self.limit if self.is_floor else self.value <= self.limit

    @property
    def text(self) -> str:
        """One line: value, limit, verdict."""
        sign = ">=" if self.is_floor else "<="
        verdict = "met" if self.is_met else "NOT met"
        value, limit = f"{self.value:,.4g}", f"{self.limit:,.4g}"
        if self.value >= 10_000:
            value, limit = f"{self.value:,.0f}", f"{self.limit:,.0f}"
        return f"{self.name:<42} {value:>12} {self.unit:<12} limit {sign} {limit:<9} {verdict}"
