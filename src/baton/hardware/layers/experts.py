"""One layer of experts, measured by rows and by how many distinct experts they wake."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from baton.errors import ConfigError
from baton.hardware.layers.files import number, read_rows
from baton.hardware.layers.points import Points


class ExpertTable:
    """Between measured numbers of experts along a line, as between numbers of rows."""

    def __init__(self, cells: Mapping[tuple[int, int], float], what: str) -> None:
        if not cells:
            raise ConfigError(f"{what}: no rows")
        self._counts = sorted({woken for _, woken in cells})
        self._by_count = {
            count: Points({n: us for (n, woken), us in cells.items() if woken == count}, what)
            for count in self._counts
        }

    def us(self, num_rows: float, num_woken: float) -> float:
        """Of one GPU that holds the woken experts; every row takes the model's number of them."""
        at = max(0, min(bisect_right(self._counts, num_woken) - 1, len(self._counts) - 2))
        if len(self._counts) == 1:
            return self._by_count[self._counts[0]].at(num_rows)
        low, high = self._counts[at], self._counts[at + 1]
        share = (num_woken - low) / (high - low)
        low_us, high_us = (self._time(count, num_rows) for count in (low, high))
        return max(0.0, low_us + share * (high_us - low_us))

    def _time(self, count: int, num_rows: float) -> float:
        points = self._by_count[count]
        return points.at(max(num_rows, float(points.knots[0])))


def local_woken(num_experts: int, experts_per_token: int, num_rows: float, num_gpus: int) -> float:
    """Distinct experts of one of `num_gpus` GPUs that rows of all of them wake, chosen evenly."""
    if num_rows <= 0:
        return 0.0
    miss = 1.0 - experts_per_token / num_experts
    return num_experts / num_gpus * (1.0 - math.pow(miss, num_rows))


def read_experts(path: Path) -> ExpertTable | None:
    """None where the folder has no such table."""
    if not path.exists() and not path.with_name(path.name + ".gz").exists():
        return None
    cells = {
        (
            int(number(path, row, "tokens")),
            int(number(path, row, "activated_experts")),
        ): number(path, row, "time_us")
        for row in read_rows(path)
    }
    return ExpertTable(cells, str(path))
