"""Step curves as flat arrays, and their value: the inner loop of every fast simulation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled

Floats = NDArray[np.float64]


class PackedLine(NamedTuple):
    """Knots and values; empty for a curve that is not there."""

    x: Floats
    y: Floats


class PackedGrid(NamedTuple):
    """Knots of both axes, and values with one row for each x."""

    x: Floats
    y: Floats
    z: Floats


class PackedSide(NamedTuple):
    """`curves.StepSide`, field by field."""

    step_us: float
    prefill_us: float
    chunk_us: float
    pair_us: float
    gathered_us: float
    decode_us: float
    decode_row_us: float
    decode_token_us: float
    rows: PackedLine
    prefill_rows: PackedLine
    prefill_attention: PackedGrid
    decode_grid: PackedGrid


class Packed(NamedTuple):
    """`curves.StepCurves`, field by field."""

    first: PackedSide
    second: PackedSide
    num_sides: int
    mixed_factor: float
    mixed_as_prefill: bool
    pipeline: int
    max_rows: float
    max_visible: float
    max_decodes: float
    max_context: float


def pack_line(knots: Sequence[float], values: Sequence[float]) -> PackedLine:
    """As arrays."""
    return PackedLine(np.array(knots, np.float64), np.array(values, np.float64))


def pack_grid(
    x: Sequence[float], y: Sequence[float], values: Sequence[Sequence[float]]
) -> PackedGrid:
    """As arrays."""
    z = np.array(values, np.float64).reshape(len(x), len(y))
    return PackedGrid(np.array(x, np.float64), np.array(y, np.float64), z)


@compiled
def _cell(knots: Floats, at: float) -> int:
    """The piece that holds a place, the first or last one for a place outside."""
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= at:
            low = middle
        else:
            high = middle
    return low


@compiled
def line_us(line: PackedLine, at: float) -> float:
    """Of a line, never below 0; 0 of one that is not there."""
    if len(line.x) == 0:
        return 0.0
    if len(line.x) == 1:
        return float(line.y[0])
    i = _cell(line.x, at)
    share = (at - line.x[i]) / (line.x[i + 1] - line.x[i])
    return float(max(0.0, line.y[i] + share * (line.y[i + 1] - line.y[i])))


@compiled
def grid_us(grid: PackedGrid, x: float, y: float) -> float:
    """Of a grid, never below 0; 0 of one that is not there."""
    num_x, num_y = len(grid.x), len(grid.y)
    if num_x == 0:
        return 0.0
    i = j = 0
    share_x = share_y = 0.0
    if num_x > 1:
        i = _cell(grid.x, x)
        share_x = (x - grid.x[i]) / (grid.x[i + 1] - grid.x[i])
    if num_y > 1:
        j = _cell(grid.y, y)
        share_y = (y - grid.y[j]) / (grid.y[j + 1] - grid.y[j])
    i_next, j_next = min(i + 1, num_x - 1), min(j + 1, num_y - 1)
    low = grid.z[i, j] + share_y * (grid.z[i, j_next] - grid.z[i, j])
    high = grid.z[i_next, j] + share_y * (grid.z[i_next, j_next] - grid.z[i_next, j])
    return float(max(0.0, low + share_x * (high - low)))


@compiled
def _prefill_us(
    side: PackedSide, rows: Floats, visible: Floats, num_chunks: int, extra_rows: float
) -> float:
    total = side.prefill_us + side.chunk_us * num_chunks
    num_rows = extra_rows
    for k in range(num_chunks):
        n, v = rows[k], visible[k]
        num_rows += n
        total += side.pair_us * (n * v + 0.5 * n * (n + 1.0)) + side.gathered_us * (n + v)
        total += grid_us(side.prefill_attention, n, v)
    return total + line_us(side.prefill_rows, num_rows)


@compiled
def _decode_us(side: PackedSide, num_decodes: int, num_seen: float) -> float:
    total = side.decode_us + side.decode_row_us * num_decodes + side.decode_token_us * num_seen
    return total + grid_us(side.decode_grid, float(num_decodes), num_seen / num_decodes)


@compiled
def _side_us(
    side: PackedSide,
    rows: Floats,
    visible: Floats,
    num_chunks: int,
    num_decodes: int,
    num_seen: float,
    mixed_as_prefill: bool,
) -> float:
    num_rows = float(num_decodes)
    for k in range(num_chunks):
        num_rows += rows[k]
    total = side.step_us + line_us(side.rows, num_rows)
    if num_chunks > 0 and num_decodes > 0 and mixed_as_prefill:
        return total + _prefill_us(side, rows, visible, num_chunks, float(num_decodes))
    if num_chunks > 0:
        total += _prefill_us(side, rows, visible, num_chunks, 0.0)
    if num_decodes > 0:
        total += _decode_us(side, num_decodes, num_seen)
    return total


@compiled
def step_us(
    curves: Packed,
    rows: Floats,
    visible: Floats,
    num_chunks: int,
    num_decodes: int,
    num_seen: float,
) -> float:
    """One stage of a step of the first `num_chunks` chunks and `num_decodes` decode rows."""
    if num_chunks == 0 and num_decodes == 0:
        return 0.0
    mixed = curves.mixed_as_prefill
    total = _side_us(curves.first, rows, visible, num_chunks, num_decodes, num_seen, mixed)
    if curves.num_sides > 1:
        other = _side_us(curves.second, rows, visible, num_chunks, num_decodes, num_seen, mixed)
        total = max(total, other)
    if num_chunks > 0 and num_decodes > 0:
        total *= curves.mixed_factor
    return total


@compiled
def is_outside(
    curves: Packed, num_rows: float, longest: float, num_decodes: int, num_seen: float
) -> bool:
    """Whether a step leaves what was measured; `longest` is the largest v + n of its chunks."""
    if num_rows > curves.max_rows or longest > curves.max_visible:
        return True
    return num_decodes > 0 and (
        num_decodes > curves.max_decodes or num_seen / num_decodes > curves.max_context
    )
