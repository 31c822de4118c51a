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

    The splits of one grid are measured in turns, so that a slow minute hits all of them. Stops at
    the stride `finest`.
    """
    samples: dict[int, list[float]] = {}
    _measure(coarse_splits(num_rows, stride), rounds, time_of, samples)
    while stride // 2 >= finest:
        stride //= 2
        best = best_of(samples)
        near = [n for n in (best - stride, best + stride) if 0 < n < num_rows]
        _measure([n for n in near if n not in samples], rounds, time_of, samples)
    return best_of(samples), samples


def best_of(samples: dict[int, list[float]]) -> int:
    """The split with the least median; of equals the one with fewer rows first."""
    return min(sorted(samples), key=lambda split: statistics.median(samples[split]))


def _measure(
    splits: Sequence[int], rounds: int, time_of: TimeOf, samples: dict[int, list[float]]
) -> None:
    for _ in range(rounds):
        for split in splits:
            samples.setdefault(split, []).append(time_of(split))
