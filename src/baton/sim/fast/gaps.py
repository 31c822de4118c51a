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
def count_gap(gaps: Ints, gap_us: float, num: int) -> None:
    """So many times between two tokens."""
    number = 0
    if gap_us > FIRST_US:
        number = min(NUM_BINS - 1, int(math.log(gap_us) * _PER_LOG))
    gaps[number] += num
