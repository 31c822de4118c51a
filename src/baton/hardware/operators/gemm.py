"""Linear layers by (rows, outputs, inputs)."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import TableFolder
from baton.hardware.operators.precision import Precision, find_precision, peak_flops, roofline_us
from baton.hardware.operators.surface import Surface
from baton.hardware.system import System


def gemm_roofline_us(
    rows: ArrayLike, outputs: ArrayLike, inputs: ArrayLike, precision: Precision, system: System
) -> Floats:
    """Two operations for each product; weights, inputs and outputs pass through memory once."""
    m, n, k = (np.asarray(one, np.float64) for one in (rows, outputs, inputs))
    nbytes = n * k * precision.weight_nbytes + m * k * min(precision.weight_nbytes, 2.0) + m * n * 2
    peak = peak_flops(system, precision)
    return roofline_us(2 * m * n * k, nbytes, peak, system.memory_bytes_per_s)


@lru_cache(maxsize=32)
def gemm_surface(folder: TableFolder, table: str) -> Surface | None:
    """Over (m, n, k) for one type of operands; None where the table lacks it."""
    columns = folder.columns("gemm")
    chosen = columns.texts("gemm_dtype") == table
    if not chosen.any():
        return None
    m, n, k = (columns.numbers(name)[chosen] for name in ("m", "n", "k"))
    measured = columns.numbers("latency_ms")[chosen] * 1e3
    roof = gemm_roofline_us(m, n, k, find_precision(table), folder.system)
    return Surface.of_points((m, n, k), measured / roof)


class Gemms:
    """Times of linear layers on a system, in one precision."""

    def __init__(self, folder: TableFolder, system: System, precision: Precision) -> None:
        self.system, self.precision = system, precision
        found = [name for name in (*precision.tables, "bfloat16") if gemm_surface(folder, name)]
        self.table = found[0]
        surface = gemm_surface(folder, self.table)
        assert surface is not None
        self.surface = surface
        self.is_measured = folder.system.name == system.name and found[0] == precision.tables[0]

    def us(self, rows: ArrayLike, outputs: float, inputs: float) -> Floats:
        """One product of a matrix of `rows` rows."""
        if outputs <= 0 or inputs <= 0:
            return np.zeros(np.shape(rows))
        roof = gemm_roofline_us(rows, outputs, inputs, self.precision, self.system)
        return np.asarray(self.surface.factor(rows, outputs, inputs) * roof, np.float64)
