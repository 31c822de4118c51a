"""Step curves as one flat array, and their value: the inner loop of every fast simulation.

An array holds one set of curves behind another, each from its own `start`: a head, two sides of
constants and places, then the knots and values that the places name (relative to `start`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled

Floats = NDArray[np.float64]


class Packed(NamedTuple):
    """`curves.StepCurves` in an array, from an index on."""

    values: Floats
    start: int


NUM_SIDES, MIXED_FACTOR, MIXED_AS_PREFILL, PIPELINE = 0, 1, 2, 3
MAX_ROWS, MAX_VISIBLE, MAX_DECODES, MAX_CONTEXT = 4, 5, 6, 7
HEAD_SIZE = 8
# Of one side, from its first entry on.
STEP, PREFILL, CHUNK, PAIR, GATHERED, DECODE, DECODE_ROW, DECODE_TOKEN = 0, 1, 2, 3, 4, 5, 6, 7
ROWS, PREFILL_ROWS, PREFILL_ATTENTION, DECODE_GRID = 8, 10, 12, 15
MIXED_ROWS, MIXED_DECODE, GROUP_ROWS = 18, 21, 24
"""Lines are a place and a number of knots; grids a place and two numbers."""
SIDE_SIZE = 26

Line = tuple[Sequence[float], Sequence[float]]
Grid = tuple[Sequence[float], Sequence[float], Sequence[Sequence[float]]]


class Packer:
    """Lays one set of curves into a list of numbers."""

    def __init__(self, head: Sequence[float]) -> None:
        assert len(head) == HEAD_SIZE
        self._values = [float(one) for one in head] + [0.0] * (2 * SIDE_SIZE)

    def add_side(
        self, side: int, constants: Sequence[float], lines: dict[int, Line], grids: dict[int, Grid]
    ) -> None:
        """Constants in the order of their names; lines and grids by the place that names them."""
        values, first = self._values, HEAD_SIZE + side * SIDE_SIZE
        values[first : first + len(constants)] = [float(one) for one in constants]
        for place, (knots, heights) in lines.items():
            values[first + place : first + place + 2] = [len(values), len(knots)]
            values += [*knots, *heights]
        for place, (x, y, rows) in grids.items():
            values[first + place : first + place + 3] = [len(values), len(x), len(y)]
            values += [*x, *y, *(height for row in rows for height in row)]

    def packed(self) -> Packed:
        """From index 0 on."""
        return Packed(np.array(self._values, np.float64), 0)


def stack(curves: Sequence[Packed]) -> tuple[Floats, NDArray[np.int64]]:
    """Several sets behind one another, and where each starts."""
    starts = np.cumsum([0, *(len(one.values) for one in curves)])[:-1]
    return np.concatenate([one.values for one in curves]), starts.astype(np.int64)


@compiled
def _cell(values: Floats, first: int, num_knots: int, at: float) -> int:
    """The piece that holds a place, the first or last one for a place outside."""
    low, high = 0, num_knots - 1
    while high - low > 1:
        middle = (low + high) // 2
        if values[first + middle] <= at:
            low = middle
        else:
            high = middle
    return low


@compiled
def line_us(curves: Packed, at_place: int, at: float) -> float:
    """Of a line, never below 0; 0 of one that is not there."""
    values, num_knots = curves.values, int(curves.values[at_place + 1])
    if num_knots == 0:
        return 0.0
    x = curves.start + int(values[at_place])
    y = x + num_knots
    if num_knots == 1:
        return float(values[y])
    i = _cell(values, x, num_knots, at)
    share = (at - values[x + i]) / (values[x + i + 1] - values[x + i])
    return float(max(0.0, values[y + i] + share * (values[y + i + 1] - values[y + i])))


@compiled
def grid_us(curves: Packed, at_place: int, at_x: float, at_y: float) -> float:
    """Of a grid, never below 0; 0 of one that is not there."""
    values = curves.values
    num_x, num_y = int(values[at_place + 1]), int(values[at_place + 2])
    if num_x == 0:
        return 0.0
    x = curves.start + int(values[at_place])
    y, z = x + num_x, x + num_x + num_y
    i = j = 0
    share_x = share_y = 0.0
    if num_x > 1:
        i = _cell(values, x, num_x, at_x)
        share_x = (at_x - values[x + i]) / (values[x + i + 1] - values[x + i])
    if num_y > 1:
        j = _cell(values, y, num_y, at_y)
        share_y = (at_y - values[y + j]) / (values[y + j + 1] - values[y + j])
    low = z + i * num_y + j
    high = z + min(i + 1, num_x - 1) * num_y + j
    step = 1 if j + 1 < num_y else 0
    at_low = values[low] + share_y * (values[low + step] - values[low])
    at_high = values[high] + share_y * (values[high + step] - values[high])
    return float(max(0.0, at_low + share_x * (at_high - at_low)))


@compiled
def _prefill_us(
    curves: Packed, side: int, rows: Floats, visible: Floats, num_chunks: int, extra_rows: float
) -> float:
    values = curves.values
    total = values[side + PREFILL] + values[side + CHUNK] * num_chunks
    num_rows = extra_rows
    for k in range(num_chunks):
        n, v = rows[k], visible[k]
        num_rows += n
        total += values[side + PAIR] * (n * v + 0.5 * n * (n + 1.0))
        total += values[side + GATHERED] * (n + v)
        total += grid_us(curves, side + PREFILL_ATTENTION, n, v)
    return float(total + line_us(curves, side + PREFILL_ROWS, num_rows))


@compiled
def _side_us(
    curves: Packed,
    side: int,
    rows: Floats,
    visible: Floats,
    num_chunks: int,
    num_decodes: int,
    num_seen: float,
) -> float:
    values = curves.values
    num_rows = float(num_decodes)
    for k in range(num_chunks):
        num_rows += rows[k]
    total = values[side + STEP] + line_us(curves, side + ROWS, num_rows)
    total += line_us(curves, side + GROUP_ROWS, num_rows)
    is_mixed = num_chunks > 0 and num_decodes > 0
    if is_mixed and values[curves.start + MIXED_AS_PREFILL] > 0.0:
        extra = float(num_decodes)
        return float(total + _prefill_us(curves, side, rows, visible, num_chunks, extra))
    if num_chunks > 0:
        total += _prefill_us(curves, side, rows, visible, num_chunks, 0.0)
    if num_decodes > 0:
        total += values[side + DECODE] + values[side + DECODE_ROW] * num_decodes
        total += values[side + DECODE_TOKEN] * num_seen
        context = num_seen / num_decodes
        is_own = is_mixed and values[side + MIXED_DECODE + 1] > 0.0
        place = side + (MIXED_DECODE if is_own else DECODE_GRID)
        total += grid_us(curves, place, float(num_decodes), context)
    if is_mixed:
        total += grid_us(
            curves, side + MIXED_ROWS, num_rows - float(num_decodes), float(num_decodes)
        )
    return float(total)


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
    values, head = curves.values, curves.start
    total = 0.0
    for number in range(int(values[head + NUM_SIDES])):
        side = head + HEAD_SIZE + number * SIDE_SIZE
        time_us = _side_us(curves, side, rows, visible, num_chunks, num_decodes, num_seen)
        total = max(total, time_us)
    if num_chunks > 0 and num_decodes > 0:
        total *= values[head + MIXED_FACTOR]
    return float(total)


@compiled
def together_us(curves: Packed, own_us: float, own_rows: float, all_rows: float) -> float:
    """A step of a worker that takes `own_us` alone, beside as many rows of all its group."""
    first = curves.start + HEAD_SIZE
    alone_us = line_us(curves, first + GROUP_ROWS, own_rows)
    return float(own_us - alone_us + line_us(curves, first + GROUP_ROWS, all_rows))


@compiled
def is_outside(
    curves: Packed, num_rows: float, longest: float, num_decodes: int, num_seen: float
) -> bool:
    """Whether a step leaves what was measured; `longest` is the largest v + n of its chunks."""
    values, head = curves.values, curves.start
    if num_rows > values[head + MAX_ROWS] or longest > values[head + MAX_VISIBLE]:
        return True
    if num_decodes == 0:
        return False
    context = num_seen / num_decodes
    return bool(num_decodes > values[head + MAX_DECODES] or context > values[head + MAX_CONTEXT])


@compiled
def steps_to_knot(curves: Packed, num_decodes: int, num_seen: float) -> float:
    """How many steps of the same decodes, each with one more token, stay between two knots.

    A step's time is a convex function of the tokens it sees there; infinite beyond the last knot.
    """
    values, head = curves.values, curves.start
    context = num_seen / num_decodes
    knot = math.inf if context > values[head + MAX_CONTEXT] else values[head + MAX_CONTEXT]
    for number in range(int(values[head + NUM_SIDES])):
        place = head + HEAD_SIZE + number * SIDE_SIZE + DECODE_GRID
        y = head + int(values[place]) + int(values[place + 1])
        for j in range(1, int(values[place + 2]) - 1):
            if values[y + j] > context:
                knot = min(knot, values[y + j])
                break
    return float(knot - context + 1.0)
