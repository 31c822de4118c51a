"""Times between tokens, as a histogram with edges in equal ratios."""

import math

import numpy as np

from baton.compiled import compiled
from baton.sim.fast.state import Floats, Ints

FIRST_US = 1.0
RATIO = 1.02
NUM_BINS = 1120
"""Up to more than an hour; what is longer is in the last bin."""
_PER_LOG = 1.0 / math.log(RATIO)


def gap_edges_us() -> Floats:
    """One more than there are bins; the first bin begins at 0."""
    edges = FIRST_US * RATIO ** np.arange(NUM_BINS + 1, dtype=np.float64)
    edges[0] = 0.0
    return edges


@compiled
def _bin_of(gap_us: float) -> int:
    if gap_us <= FIRST_US:
        return 0
    return min(NUM_BINS - 1, int(math.log(gap_us) * _PER_LOG))


@compiled
def count_gap(gaps: Ints, gap_us: float, num: int) -> None:
    """So many times between two tokens."""
    gaps[_bin_of(gap_us)] += num


@compiled
def count_run(gaps: Ints, gap_us: float, more_us: float, num_steps: int, num: int) -> None:
    """So many in each of some steps, each step longer than the one before by as much."""
    done = 0
    while done < num_steps:
        number = _bin_of(gap_us + more_us * done)
        last = num_steps - 1
        # Bins are wide: mostly all of a run is in one of them.
        while last > done and _bin_of(gap_us + more_us * last) != number:
            last = (done + last) // 2
        gaps[number] += num * (last - done + 1)
        done = last + 1
