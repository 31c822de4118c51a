"""All state of a fast simulation, as a few flat arrays; `columns` names what they hold."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class State(NamedTuple):
    """Passed to every compiled function."""

    request_us: Floats
    requests: Ints
    worker_us: Floats
    workers: Ints
    lane_us: Floats
    lanes: Ints
    finishing: Ints
    """Of each lane, a wheel of lists of requests by the counter at which they leave."""
    growing: Ints
    """Of each lane, a wheel of how many need their first further block at a counter, then, from
    `GROWING_SIZE` on, how many need one at every counter of that remainder of the block size."""
    chunks: Ints
    """Of each lane, requests and rows of the prompt chunks of its step."""
    chunk_rows: Floats
    """Scratch: rows and visible rows of a step's chunks, two arrays."""
    event_us: Floats
    events: Ints
    """A heap from entry 1 on; entry 0 is the event that is happening."""
    numbers: Floats
    counts: Ints
    gaps: Ints
    """Histogram of times between tokens."""
    curves: Floats
