"""Bytes between a move's order and its visibility never exceed the credit of the transfer."""

from collections.abc import Sequence

from baton.core.effects import Effect, MoveChunk
from baton.core.events import ChunkDigested, Event
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class CreditsBoundBytes(Observer):
    """Counts in-flight bytes itself: from MoveChunk to the chunk being DEVICE_VISIBLE."""

    name = "credits-bound-bytes"

    def __init__(self) -> None:
        self._out: dict[int, dict[int, int]] = {}

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Subtract what became visible, then add what was ordered."""
        if isinstance(event, ChunkDigested) and not event.error:
            self._see(worker, event)
        for effect in effects:
            if isinstance(effect, MoveChunk):
                out = self._out.setdefault(effect.reservation_id, {})
                if effect.chunk.chunk_id in out:
                    self.fail(f"chunk {effect.chunk.chunk_id} is moved twice without an answer")
                out[effect.chunk.chunk_id] = effect.chunk.nbytes
                nbytes, capacity = sum(out.values()), worker.world.plan.transfer.credit_nbytes
                if nbytes > capacity:
                    self.fail(
                        f"reservation {effect.reservation_id:x} has {nbytes} B in flight "
                        f"under a credit of {capacity} B"
                    )

    def _see(self, worker: SimWorker, event: ChunkDigested) -> None:
        """Only the destination's own read-back makes a chunk visible."""
        is_destination = event.reservation_id >> 48 == worker.ordinal
        if is_destination:
            self._out.get(event.reservation_id, {}).pop(event.chunk_id, None)
