"""One attention layer of a batch: a chunk of a prompt, decode rows, or both in one launch.

Measured cells are (rows of the chunk, K/V before it, decode rows, K/V of each) -> microseconds. A
launch with both costs more than its parts, because decode rows then run in the kernel of prompts;
the excess is a sum of two surfaces, fitted to the cells:

    t(c, v, n, k) = prefill(c, v) + rows(c, n) + decode(n, k)
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.hardware.curves import Grid
from baton.hardware.layers.files import number, read_rows

Floats = NDArray[np.float64]
Cell = tuple[int, int, int, int]
_COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
_ROUNDS = 100
"""Of alternating means; the two surfaces settle within a few dozen."""


class Attention:
    """The cells of one table as surfaces."""

    def __init__(self, cells: Mapping[Cell, float], path: Path) -> None:
        self.cells = dict(cells)
        self.prefill = _grid({key[:2]: us for key, us in cells.items() if key[2] == 0}, path)
        self.decode = _grid({key[2:]: us for key, us in cells.items() if key[0] == 0}, path)
        self.max_chunk = int(self.prefill.x[-1])
        self.mixed_rows, self.mixed_decode = _excess(cells, self.max_chunk, path)

    @property
    def launch_us(self) -> float:
        """Of the least chunk: what every launch costs, however many chunks it takes."""
        return min(min(row) for row in self.prefill.values_us)


def read_attention(path: Path) -> Attention:
    """Raises ConfigError that names the file and what is wrong with it."""
    cells: dict[Cell, float] = {}
    for row in read_rows(path):
        chunk, before, rows, seen = (int(number(path, row, column)) for column in _COLUMNS)
        cells[chunk, before, rows, seen] = number(path, row, "time_us")
    return Attention(cells, path)


def _grid(cells: Mapping[tuple[int, ...], float], path: Path) -> Grid:
    """Every measured place of both axes; a gap lies on the line between its row's neighbours."""
    x, y = (sorted({key[axis] for key in cells}) for axis in (0, 1))
    if not x:
        raise ConfigError(f"{path}: no cells of one phase alone")
    rows = []
    for at in x:
        own = sorted((key[1], us) for key, us in cells.items() if key[0] == at)
        heights = np.interp(y, [at_y for at_y, _ in own], [us for _, us in own])
        rows.append(tuple(float(us) for us in heights))
    return Grid(x=_floats(x), y=_floats(y), values_us=tuple(rows))


def _excess(cells: Mapping[Cell, float], max_before: int, path: Path) -> tuple[Grid, Grid]:
    """Rows (c, n) and decode (n, k) of cells with both phases.

    Cells with more K/V before the chunk than one step can leave there are not fitted: a long
    prefill hides part of the decode rows, which no sum can say.
    """
    alone = {key[:2]: us for key, us in cells.items() if key[2] == 0}
    both = [
        (*key, us - alone[key[:2]], us)
        for key, us in cells.items()
        if key[0] > 0 and key[2] > 0 and key[1] <= max_before and key[:2] in alone
    ]
    if not both:
        raise ConfigError(f"{path}: no cells of both phases")
    chunks, counts, lengths = (sorted({int(one[axis]) for one in both}) for axis in (0, 2, 3))
    rows, decode = [], []
    for count in counts:
        own = np.array([one for one in both if one[2] == count], np.float64)
        by_chunk, by_length = _two_sums(own, chunks, lengths)
        rows.append(by_chunk)
        decode.append(by_length)
    by_rows = tuple(zip(*(one.tolist() for one in rows), strict=True))
    return (
        Grid(x=_floats(chunks), y=_floats(counts), values_us=by_rows),
        Grid(
            x=_floats(counts),
            y=_floats(lengths),
            values_us=tuple(tuple(one.tolist()) for one in decode),
        ),
    )


def _two_sums(own: Floats, chunks: list[int], lengths: list[int]) -> tuple[Floats, Floats]:
    """Least squares of relative errors, by alternating means; the chunk's part is 0 at its least.

    A place that was not measured with so many rows lies on the line between its neighbours.
    """
    i, j = np.searchsorted(chunks, own[:, 0]), np.searchsorted(lengths, own[:, 3])
    excess, weight = own[:, 4], 1.0 / own[:, 5] ** 2
    sums = np.bincount(i, weight, len(chunks)), np.bincount(j, weight, len(lengths))
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chunk, by_length = np.zeros(len(chunks)), np.zeros(len(lengths))
        for _ in range(_ROUNDS):
            by_length = np.bincount(j, weight * (excess - by_chunk[i]), len(lengths)) / sums[1]
            by_chunk = np.bincount(i, weight * (excess - by_length[j]), len(chunks)) / sums[0]
    least = np.nanmin(by_chunk)
    return _filled(chunks, by_chunk - least), _filled(lengths, by_length + least)


def _filled(places: Iterable[int], values: Floats) -> Floats:
    known = np.isfinite(values)
    at = np.array(list(places), np.float64)
    return np.asarray(np.interp(at, at[known], values[known]), np.float64)


def _floats(values: Iterable[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
