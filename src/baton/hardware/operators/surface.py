"""What was measured, as a factor over a roofline: interpolated, and carried to other machines."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from baton.errors import ConfigError
from baton.hardware.operators.columns import Floats


class Surface:
    """A full grid of log(measured / roofline) over logarithmic axes, linear in between.

    The factor varies far less than the time does, so that interpolation errs little and the ends
    extend by the roofline. A cell that was not measured takes the factor of the nearest one along
    the last axis, then along the ones before.
    """

    def __init__(self, axes: Sequence[Floats], factors: Floats) -> None:
        self.axes = [np.log(axis) for axis in axes]
        self.lows = [float(axis[0]) for axis in axes]
        self.highs = [float(axis[-1]) for axis in axes]
        self.log_factors = np.log(factors)

    @classmethod
    def of_points(cls, points: Sequence[Floats], factors: Floats) -> "Surface":
        """From scattered cells of a grid; of several at one place the least counts."""
        if not len(factors):
            raise ConfigError("surface: no measured cell")
        axes, places = [], []
        for column in points:
            axis, place = np.unique(column, return_inverse=True)
            axes.append(axis)
            places.append(place)
        grid = np.full([len(axis) for axis in axes], np.inf)
        np.minimum.at(grid, tuple(places), factors)
        grid[np.isinf(grid)] = np.nan
        return cls(axes, _filled(grid))

    def factor(self, *at: ArrayLike) -> Floats:
        """Measured over roofline at places, clamped to the grid."""
        places = np.broadcast_arrays(*[np.asarray(one, np.float64) for one in at])
        cells, shares = [], []
        for axis, place in zip(self.axes, places, strict=True):
            log_place = np.log(np.maximum(place, 1e-9))
            if len(axis) == 1:
                cells.append(np.zeros(place.shape, np.int64))
                shares.append(np.zeros(place.shape))
                continue
            cell = np.clip(np.searchsorted(axis, log_place, side="right") - 1, 0, len(axis) - 2)
            share = (log_place - axis[cell]) / (axis[cell + 1] - axis[cell])
            cells.append(cell)
            shares.append(np.clip(share, 0.0, 1.0))
        return np.exp(self._blend(cells, shares))

    def is_outside(self, *at: float) -> bool:
        """Whether a place lies beyond what was measured."""
        return any(
            not low * (1 - 1e-9) <= place <= high * (1 + 1e-9)
            for place, low, high in zip(at, self.lows, self.highs, strict=True)
        )

    def _blend(self, cells: list[np.ndarray], shares: list[Floats]) -> Floats:
        total = np.zeros(shares[0].shape)
        num = len(cells)
        for corner in range(1 << num):
            weight = np.ones(shares[0].shape)
            index = []
            for axis in range(num):
                upper = corner >> axis & 1
                last = len(self.axes[axis]) - 1
                index.append(np.minimum(cells[axis] + upper, last))
                weight = weight * (shares[axis] if upper else 1.0 - shares[axis])
            if weight.any():
                total = total + weight * self.log_factors[tuple(index)]
        return np.asarray(total, np.float64)


def _filled(grid: Floats) -> Floats:
    for axis in range(grid.ndim - 1, -1, -1):
        if not np.isnan(grid).any():
            break
        moved = np.moveaxis(grid, axis, -1)
        lines = moved.reshape(-1, moved.shape[-1])
        for line in lines:
            known = np.flatnonzero(~np.isnan(line))
            if 0 < len(known) < len(line):
                places = np.arange(len(line))
                nearest = known[np.argmin(np.abs(places[:, None] - known[None, :]), axis=1)]
                line[:] = line[nearest]
        grid = np.moveaxis(lines.reshape(moved.shape), -1, axis)
    return grid
