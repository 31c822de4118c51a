"""A data plane that only takes time: one copy or read-back at a time, no bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, Event, IoQuiesced
from baton.policy.service_profile import TransferCost
from baton.sim.timeline import Timeline

_CHECKSUM = 1
"""Of every chunk: nothing is corrupted here."""


class ReplayPlane:
    """The transfer thread of one worker; `arrive(peer, event)` tells the peer of a write."""

    def __init__(
        self,
        worker_id: str,
        cost: TransferCost,
        timeline: Timeline,
        feed: Callable[[Event], None],
        arrive: Callable[[str, ChunkArrived], None],
    ) -> None:
        self._worker_id = worker_id
        self._cost = cost
        self._timeline = timeline
        self._feed = feed
        self._arrive = arrive
        self._queue: deque[MoveChunk | DigestChunk] = deque()
        self._running: MoveChunk | DigestChunk | None = None
        self._cancelled: set[int] = set()
        self.moved_nbytes = 0

    def submit(self, order: MoveChunk | DigestChunk) -> None:
        """Queue a copy or a read-back."""
        if order.reservation_id not in self._cancelled:
            self._queue.append(order)
            self._next()

    def cancel(self, reservation_id: int) -> None:
        """Drop what is queued of a reservation; it is quiet when nothing of it runs."""
        self._cancelled.add(reservation_id)
        self._queue = deque(o for o in self._queue if o.reservation_id != reservation_id)
        if self._running is None or self._running.reservation_id != reservation_id:
            self._quiesce(reservation_id)

    def _quiesce(self, reservation_id: int) -> None:
        self._timeline.after(1, lambda: self._feed(IoQuiesced(reservation_id=reservation_id)))

    def _next(self) -> None:
        if self._running is not None or not self._queue:
            return
        order = self._running = self._queue.popleft()
        nbytes = order.chunk.nbytes
        if isinstance(order, DigestChunk):
            self._timeline.after(
                max(1, round(self._cost.digest_us(nbytes))), lambda: self._digested(order)
            )
            return
        copy_us = max(1, round(self._cost.copy_us(nbytes)))
        self._timeline.after(copy_us, lambda: self._moved(order, copy_us))

    def _finish(self, reservation_id: int) -> bool:
        """The order is over; False when it was cancelled while it ran."""
        self._running = None
        cancelled = reservation_id in self._cancelled
        if cancelled:
            self._quiesce(reservation_id)
        self._next()
        return not cancelled

    def _digested(self, order: DigestChunk) -> None:
        if self._finish(order.reservation_id):
            self._feed(
                ChunkDigested(
                    reservation_id=order.reservation_id,
                    chunk_id=order.chunk.chunk_id,
                    checksum=self._checksum,
                )
            )

    @property
    def _checksum(self) -> int:
        return _CHECKSUM if self._cost.checksum else 0

    def _moved(self, order: MoveChunk, copy_us: int) -> None:
        nbytes = order.chunk.nbytes
        self.moved_nbytes += nbytes
        if order.write:
            arrived = ChunkArrived(
                source_id=self._worker_id,
                source_epoch=1,
                reservation_id=order.reservation_id,
                chunk_id=order.chunk.chunk_id,
                nbytes=nbytes,
                checksum=self._checksum,
            )
            self._arrive(order.peer_id, arrived)
        if self._finish(order.reservation_id):
            self._feed(
                ChunkMoved(
                    reservation_id=order.reservation_id,
                    chunk_id=order.chunk.chunk_id,
                    nbytes=nbytes,
                    checksum=self._checksum,
                    duration_us=copy_us,
                )
            )
