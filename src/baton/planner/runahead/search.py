"""KVR-S: a hierarchical grid search for the partition that costs the least."""

from collections.abc import Callable
from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.planner.runahead.partition import Partition

Rows = NDArray[np.int64]
"""One partition a line, one process a column."""
CostOf = Callable[[Rows], NDArray[np.float64]]
"""The cost of each partition; the search takes the least."""
MAX_COARSE = 200_000
MAX_MOVES = 20_000


def search_partition(
    num_rows: int, num_processes: int, cost_of: CostOf, *, stride: int, finest: int = 1
) -> Partition:
    """Every partition on a coarse grid, then half the stride around the best one, and again.

    On each grid all joint moves of the boundaries by up to two strides, so over the coarser cell on
    either side, are tried until none helps. Of equal costs the one that hands on fewer rows wins.
    """
    _check(num_rows, num_processes, stride, finest)
    best = _least(_coarse(num_rows, num_processes, stride), cost_of)
    while True:
        best = _settled(best, stride, cost_of)
        if stride <= finest:
            return Partition(tuple(int(n) for n in best))
        stride = max(finest, stride // 2)


def _coarse(num_rows: int, num_processes: int, stride: int) -> Rows:
    inner = range(stride, num_rows, stride)
    bounds = np.array(list(combinations(inner, num_processes - 1)), np.int64)
    return _from_bounds(bounds.reshape(-1, num_processes - 1), num_rows)


def _settled(best: Rows, stride: int, cost_of: CostOf) -> Rows:
    """Move boundaries, together or alone, as long as it helps."""
    reach = range(-_reach(len(best)), _reach(len(best)) + 1)
    moves = np.array(list(product(reach, repeat=len(best) - 1)), np.int64)
    num_rows, steps = int(best.sum()), stride * moves.reshape(-1, len(best) - 1)
    while True:
        bounds = np.cumsum(best)[:-1] + steps
        near = _from_bounds(bounds, num_rows)
        found = _least(near[(near > 0).all(axis=1)], cost_of)
        if (found == best).all():
            return best
        best = found


def _reach(num_processes: int) -> int:
    """Strides that a boundary moves at once: fewer where all joint moves would be too many."""
    return 2 if 5 ** (num_processes - 1) <= MAX_MOVES else 1


def _from_bounds(bounds: Rows, num_rows: int) -> Rows:
    edges = np.pad(bounds, ((0, 0), (1, 1)))
    edges[:, -1] = num_rows
    rows: Rows = np.diff(edges, axis=1)
    return rows


def _least(rows: Rows, cost_of: CostOf) -> Rows:
    """By cost, then by rows handed on, then the one with fewer rows in front."""
    handed = np.cumsum(rows, axis=1)[:, :-1].sum(axis=1)
    order = np.lexsort((*rows.T[::-1], handed, cost_of(rows)))
    best: Rows = rows[order[0]]
    return best


def _check(num_rows: int, num_processes: int, stride: int, finest: int) -> None:
    if not 1 <= finest <= stride:
        raise ConfigError(f"stride {stride} down to {finest}: both at least 1, in this order")
    places = (num_rows - 1) // stride
    if num_processes < 1 or places < num_processes - 1:
        raise ConfigError(
            f"{num_rows} rows in steps of {stride} have {places} places to cut, fewer than "
            f"{num_processes} processes need; use a smaller stride"
        )
    if comb(places, num_processes - 1) > MAX_COARSE:
        raise ConfigError(
            f"{comb(places, num_processes - 1)} partitions in steps of {stride}: more than "
            f"{MAX_COARSE}; use a larger stride"
        )
    if 3 ** (num_processes - 1) > MAX_MOVES:
        raise ConfigError(
            f"{num_processes} processes: all joint moves of so many boundaries are too many"
        )


def largest_dense(rows: Rows) -> NDArray[np.float64]:
    """The largest share of dense work: the balance that the attention alone asks for."""
    before = np.cumsum(rows, axis=1) - rows
    return np.asarray((rows * before + rows * rows).max(axis=1), np.float64)


def largest_triangular(rows: Rows) -> NDArray[np.float64]:
    """The same of valid pairs."""
    before = np.cumsum(rows, axis=1) - rows
    return np.asarray((rows * before + rows * (rows + 1) // 2).max(axis=1), np.float64)
