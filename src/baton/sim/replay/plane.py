"""A data plane that only takes time: one copy or read-back at a time, no bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, Event
from baton.policy.service_profile import TransferCost
from baton.sim.orders import Order, TransferQueue
from baton.sim.timeline import Timeline

_CHECKSUM = 1
"""Of every chunk: nothing is corrupted here."""


class ReplayPlane(TransferQueue):
    """The transfer thread of one worker; `arrive(peer, event)` tells the peer of a write."""

    def __init__(
        self,
        worker_id: str,
        cost: TransferCost,
        timeline: Timeline,
        feed: Callable[[Event], None],
        arrive: Callable[[str, ChunkArrived], None],
    ) -> None:
        super().__init__(timeline.after, feed)
        self._worker_id = worker_id
        self._cost = cost
        self._arrive = arrive
        self.moved: Counter[int] = Counter()
        """Bytes by reservation."""

    def _begin(self, order: Order) -> None:
        nbytes = order.chunk.nbytes
        if isinstance(order, DigestChunk):
            self._after(max(1, round(self._cost.digest_us(nbytes))), lambda: self._digested(order))
            return
        copy_us = max(1, round(self._cost.copy_us(nbytes)))
        self._after(copy_us, lambda: self._moved(order, copy_us))

    def _digested(self, order: DigestChunk) -> None:
        if self._finish(order):
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
        self.moved[order.reservation_id] += nbytes
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
        if self._finish(order):
            self._feed(
                ChunkMoved(
                    reservation_id=order.reservation_id,
                    chunk_id=order.chunk.chunk_id,
                    nbytes=nbytes,
                    checksum=self._checksum,
                    duration_us=copy_us,
                )
            )
