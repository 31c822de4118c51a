"""What a router knows of its workers' speed: measured from their steps, as `nodes.rates` does.

How a loop uses it: `learn_step` at the end of each step, `learn_end` at the end of each answer (the
router may know that length now), `set_rates` before a question for a policy that `uses_rates`, and
`counts[NUM_OUTPUT] = expected_output(fleet, bound)`.
"""

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    PAIR_US,
    RECENT,
    RECENT_NEXT,
    RECENT_NUM,
    RECENT_SUM,
    SEQUENCE_US,
    STEP_US,
    TOKEN_US,
    Fleet,
)

# Columns of `meters`: smoothed sums of durations and of rows, and of decode steps; decayed sums of
# a plane (rows x rows, rows x pairs, pairs x pairs, rows x us, pairs x us) and of a line
# (1, sequences, us, sequences x sequences, sequences x us).
ROWS_US, ROWS, DECODES_US, DECODES, PLANE, LINE = 0, 1, 2, 3, 4, 9

_WEIGHT, _KEPT, _LEAST_SPREAD = 0.2, 0.95, 1e-3
NUM_RECENT = 64
"""Answers that the expected length is the mean of."""


@compiled
def learn_step(
    fleet: Fleet, worker: int, num_rows: int, num_pairs: float, num_decodes: int, duration_us: float
) -> None:
    """A step of prompt rows alone or of decodes alone; a mixed one tells nothing of either."""
    if duration_us <= 0.0:
        return
    if num_decodes == 0:
        _smooth(fleet, worker, ROWS_US, duration_us, float(num_rows))
        rows, pairs = float(num_rows), num_pairs
        sums = (rows * rows, rows * pairs, pairs * pairs, rows * duration_us, pairs * duration_us)
        _decay(fleet, worker, PLANE, sums)
    elif num_rows == 0:
        _smooth(fleet, worker, DECODES_US, duration_us, 1.0)
        count = float(num_decodes)
        _decay(fleet, worker, LINE, (1.0, count, duration_us, count * count, count * duration_us))


@compiled
def _smooth(fleet: Fleet, worker: int, column: int, above: float, below: float) -> None:
    """A numerator and its denominator, so that small samples weigh little."""
    one = fleet.meters[worker]
    if one[column + 1] == 0.0:
        one[column], one[column + 1] = above, below
        return
    one[column] += _WEIGHT * (above - one[column])
    one[column + 1] += _WEIGHT * (below - one[column + 1])


@compiled
def _decay(
    fleet: Fleet, worker: int, column: int, sums: tuple[float, float, float, float, float]
) -> None:
    for k in range(5):
        fleet.meters[worker, column + k] = _KEPT * fleet.meters[worker, column + k] + sums[k]


@compiled
def set_rates(fleet: Fleet, worker: int) -> None:
    """The rates by what was learned until now."""
    one, clocks = fleet.meters[worker], fleet.clocks
    clocks[worker, STEP_US] = one[DECODES_US] / one[DECODES] if one[DECODES] > 0.0 else 0.0
    clocks[worker, SEQUENCE_US] = _slope(fleet, worker)
    clocks[worker, TOKEN_US] = one[ROWS_US] / one[ROWS] if one[ROWS] > 0.0 else 0.0
    clocks[worker, PAIR_US] = 0.0
    rows, both, pairs = one[PLANE], one[PLANE + 1], one[PLANE + 2]
    by_rows, by_pairs = one[PLANE + 3], one[PLANE + 4]
    spread = rows * pairs - both * both
    if spread > _LEAST_SPREAD * rows * pairs:
        per_row = (by_rows * pairs - by_pairs * both) / spread
        per_pair = (by_pairs * rows - by_rows * both) / spread
        if per_pair > 0.0 and per_row > 0.0:
            clocks[worker, TOKEN_US], clocks[worker, PAIR_US] = per_row, per_pair
        elif per_pair > 0.0:
            clocks[worker, TOKEN_US], clocks[worker, PAIR_US] = 0.0, by_pairs / pairs


@compiled
def _slope(fleet: Fleet, worker: int) -> float:
    """What one more sequence adds: never negative, 0 until their number has differed enough."""
    one = fleet.meters[worker]
    weight, count, us = one[LINE], one[LINE + 1], one[LINE + 2]
    squares, products = one[LINE + 3], one[LINE + 4]
    spread = squares * weight - count * count
    if spread <= _LEAST_SPREAD * squares * weight:
        return 0.0
    return float(max(0.0, (products * weight - count * us) / spread))


@compiled
def learn_end(fleet: Fleet, num_tokens: int) -> None:
    """An answer of so many tokens has ended."""
    counts = fleet.counts
    place = RECENT + counts[RECENT_NEXT]
    if counts[RECENT_NUM] == NUM_RECENT:
        counts[RECENT_SUM] -= counts[place]
    else:
        counts[RECENT_NUM] += 1
    counts[place] = num_tokens
    counts[RECENT_SUM] += num_tokens
    counts[RECENT_NEXT] = (counts[RECENT_NEXT] + 1) % NUM_RECENT


@compiled
def expected_output(fleet: Fleet, bound: int) -> int:
    """Of an answer that may have `bound` tokens: the mean of the last ones."""
    counts = fleet.counts
    if counts[RECENT_NUM] == 0:
        return bound
    return int(min(bound, counts[RECENT_SUM] // counts[RECENT_NUM]))
