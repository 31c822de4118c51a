"""What bounds the loop: an event taken from the heap, a step priced, the next event put there."""

import time

import msgspec
import numpy as np

from baton.bench.sim.scenes import DYNAMO_STEPS
from baton.compiled import compiled
from baton.hardware.evaluate import Floats, Packed, step_us

_DEPTH = 64
_NUM_EVENTS = 2_000_000


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """Of this machine, now."""

    events_per_s: float

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"limit: {self.events_per_s:,.0f} events/s (a step's price, and one out of and into a "
            f"heap of {_DEPTH}); a step is one event, whatever its rows"
        )


def measure_limit() -> Limit:
    """The best of three."""
    curves, heap = DYNAMO_STEPS.packed(), np.arange(_DEPTH, dtype=np.float64)
    nothing = np.zeros(1)
    _turn(heap, curves, nothing, 10)
    best_s = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        _turn(heap, curves, nothing, _NUM_EVENTS)
        best_s = min(best_s, time.perf_counter() - begin)
    return Limit(events_per_s=_NUM_EVENTS / best_s)


@compiled
def _turn(heap: Floats, curves: Packed, nothing: Floats, num_events: int) -> float:
    """Replace the root by a later time, again and again."""
    size, at_us = len(heap), 0.0
    for number in range(num_events):
        num_decodes = 1 + number % 200
        at_us = heap[0] + step_us(curves, nothing, nothing, 0, num_decodes, 1300.0 * num_decodes)
        place = 0
        while 2 * place + 1 < size:
            child = 2 * place + 1
            if child + 1 < size and heap[child + 1] < heap[child]:
                child += 1
            if heap[child] >= at_us:
                break
            heap[place] = heap[child]
            place = child
        heap[place] = at_us
    return at_us
