"""From measured steps to a step model, and how wrong it is on steps that it has not seen."""

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.policy.service_profile.nnls import Vector, solve_non_negative
from baton.policy.service_profile.point import StepPhase, StepPoint
from baton.policy.service_profile.step_model import StepModel
from baton.policy.service_profile.terms import WORK_TERMS, StepGrid, work_amounts


class FitError(msgspec.Struct, frozen=True, kw_only=True):
    """Relative error |predicted - measured| / measured over held-out points of one phase."""

    num_points: int
    median: float
    p90: float
    max: float


def fit_steps(points: Sequence[StepPoint], grid: StepGrid) -> StepModel:
    """Fit the points that are not held out.

    Every row is divided by its measured time, so that a small step counts as much as a large
    one: what is minimised is the relative error.
    """
    used = [point for point in points if not point.held_out]
    width = 1 + len(grid.row_knots) + len(WORK_TERMS)
    if len(used) < width:
        raise ConfigError(
            f"{len(used)} measured steps cannot determine {width} coefficients; measure more"
        )
    matrix = np.array([_amounts(point, grid) for point in used], np.float64)
    target = np.array([point.step_us for point in used], np.float64)
    solution = solve_non_negative(matrix / target[:, None], np.ones(len(used)))
    num_knots = len(grid.row_knots)
    return StepModel(
        grid=grid,
        base_us=float(solution[0]),
        row_us=tuple(map(float, solution[1 : 1 + num_knots])),
        work_us=tuple(map(float, solution[1 + num_knots :])),
        max_rows=max(_num_rows(point) for point in used),
        max_visible=max(_max_visible(point) for point in used),
    )


def _amounts(point: StepPoint, grid: StepGrid) -> list[int]:
    rows = grid.segments(_num_rows(point))
    work = work_amounts(point.prefills, point.visible_lengths, grid.query_rows)
    return [1, *rows, *work]


def _num_rows(point: StepPoint) -> int:
    return sum(chunk.num_rows for chunk in point.prefills) + len(point.visible_lengths)


def _max_visible(point: StepPoint) -> int:
    ends = [chunk.num_visible + chunk.num_rows for chunk in point.prefills]
    return max((*ends, *point.visible_lengths))


def held_out_errors(points: Sequence[StepPoint], model: StepModel) -> dict[str, FitError]:
    """The error of each phase that has held-out points."""
    errors: dict[str, FitError] = {}
    for phase in StepPhase:
        found: Vector = np.array(
            [
                abs(model.step_us(point.prefills, point.visible_lengths) / point.step_us - 1)
                for point in points
                if point.held_out and point.phase is phase
            ]
        )
        if len(found):
            errors[phase] = FitError(
                num_points=len(found),
                median=statistics.median(map(float, found)),
                p90=float(np.quantile(found, 0.9)),
                max=float(found.max()),
            )
    return errors
