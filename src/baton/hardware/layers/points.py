"""Measured points along one axis: times between them, before and beyond."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError

Floats = NDArray[np.float64]


class Points:
    """Microseconds at ascending places."""

    def __init__(self, measured: Mapping[float, float], what: str) -> None:
        if not measured:
            raise ConfigError(f"{what}: no rows")
        self.knots: Floats = np.array(sorted(measured), np.float64)
        self.values: Floats = np.array([measured[x] for x in self.knots], np.float64)

    def at(self, place: float) -> float:
        """On the line between neighbours; beyond the last point in proportion to it."""
        if place > self.knots[-1]:
            return float(self.values[-1] * place / self.knots[-1])
        return float(np.interp(place, self.knots, self.values))

    def rounded_up(self, place: float) -> float:
        """At the next measured place: a matrix product takes whole tiles of rows, so that its time
        rises right behind a tile's end, where a line would still be low."""
        if place > self.knots[-1]:
            return self.at(place)
        return float(self.values[np.searchsorted(self.knots, place)])
