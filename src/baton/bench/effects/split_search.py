"""Where to cut a prompt between two processes: a hierarchical grid search (KVR-S)."""

import statistics
from collections.abc import Callable, Sequence

TimeOf = Callable[[int], float]
"""Measures one split, given as the rows of the first process."""


def coarse_splits(num_rows: int, stride: int) -> list[int]:
    """Multiples of `stride` that leave both some rows; fewer than C/4 in front help no cost."""
    return [split for split in range(stride, num_rows, stride) if 4 * split >= num_rows]


def search_split(
    num_rows: int, stride: int, finest: int, rounds: int, time_of: TimeOf
) -> tuple[int, dict[int, list[float]]]:
    """Best split and every sample: a coarse grid, then half the stride around the best, and again.

    The splits of one grid, the best so far included, are measured in turns and compared with each
    other only, so that a slow minute favours none of them. Stops at the stride `finest`.
    """
    samples: dict[int, list[float]] = {}
    best = _best(coarse_splits(num_rows, stride), rounds, time_of, samples)
    while stride // 2 >= finest:
        stride //= 2
        near = [n for n in (best - stride, best, best + stride) if 0 < n < num_rows]
        best = _best(near, rounds, time_of, samples)
    return best, samples


def _best(
    splits: Sequence[int], rounds: int, time_of: TimeOf, samples: dict[int, list[float]]
) -> int:
    """The split with the least median of these rounds; of equals the one with fewer rows first."""
    taken: dict[int, list[float]] = {split: [] for split in splits}
    for _ in range(rounds):
        for split in splits:
            taken[split].append(time_of(split))
    for split, times in taken.items():
        samples.setdefault(split, []).extend(times)
    return min(splits, key=lambda split: statistics.median(taken[split]))
