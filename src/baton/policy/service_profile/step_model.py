"""The fitted step: a base, a piecewise-linear cost of rows, and a cost of each kind of work."""

from collections.abc import Sequence

import msgspec

from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile.terms import WORK_TERMS, StepGrid, work_amounts


class StepModel(msgspec.Struct, frozen=True, kw_only=True):
    """Engine time of one step, in microseconds; no coefficient is negative."""

    grid: StepGrid
    base_us: float
    """Weights read once, launches, and everything else that does not depend on the rows."""
    row_us: tuple[float, ...]
    """One more row through the linear layers, between each of `grid.row_knots` and the next."""
    work_us: tuple[float, ...]
    """One more unit of each of `WORK_TERMS`."""
    max_rows: int
    """Most rows of a measured step; beyond it the model extrapolates."""
    max_visible: int
    """Longest visible length of a measured step."""

    def step_us(self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]) -> float:
        """Predicted time; a step without rows takes none."""
        num_rows = len(visible_lengths)
        for chunk in prefills:
            num_rows += chunk.num_rows
        if not num_rows:
            return 0.0
        total_us = self.base_us
        for cost_us, rows in zip(self.row_us, self.grid.segments(num_rows), strict=True):
            total_us += cost_us * rows
        amounts = work_amounts(prefills, visible_lengths, self.grid.query_rows)
        for cost_us, amount in zip(self.work_us, amounts, strict=True):
            total_us += cost_us * amount
        return total_us

    def coefficients(self) -> list[tuple[str, float, str]]:
        """Name, value and unit of every coefficient, for a person."""
        rows = [("base", self.base_us, "us per step, whatever it holds")]
        knots = self.grid.row_knots
        for index, cost_us in enumerate(self.row_us):
            last = knots[index + 1] if index + 1 < len(knots) else None
            span = f"{knots[index] + 1}..{last}" if last else f"{knots[index] + 1}.."
            rows.append((f"rows {span}", cost_us, "us per row through the linear layers"))
        named = zip(WORK_TERMS, self.work_us, strict=True)
        return rows + [(name.replace("_", " "), cost_us, unit) for (name, unit), cost_us in named]
