"""Performs a worker's chunk effects: through the data plane, staged where the pool is private."""

import asyncio
from collections.abc import Callable

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, Event, IoQuiesced
from baton.core.layout import KVLayout
from baton.errors import LocalProtocolError
from baton.runtime.dataplane import (
    DataPlane,
    DigestOrder,
    Finished,
    PutOrder,
    Quiesced,
    Received,
)
from baton.runtime.regions import (
    PoolShape,
    Side,
    block_runs,
    local_runs,
    reblocked_local_runs,
    reblocked_runs,
)
from baton.runtime.staging_thread import StagingThread


class ChunkMover:
    """Turns MoveChunk, DigestChunk and cancels into plane orders, and completions into events.

    Without `staging` the plane reaches the pool itself. With it, a chunk is copied out to the
    mirror before it leaves or is offered, and copied in after it was summed in the mirror: only
    then is it visible to the device.
    """

    def __init__(
        self,
        plane: DataPlane,
        layout: KVLayout,
        num_blocks: int,
        feed: Callable[[Event], None],
        *,
        checksum: bool,
        staging: StagingThread | None,
    ) -> None:
        self._plane = plane
        self._layout = layout
        self._shape = PoolShape(layout, num_blocks)
        self._feed = feed
        self._checksum = checksum
        self._staging = staging
        self._loop = asyncio.get_running_loop()
        self._digests: dict[int, DigestChunk] = {}

    # -- orders --------------------------------------------------------------------------------

    def move(self, effect: MoveChunk, peer: PoolShape | None) -> None:
        """Move a chunk to or from the pool of a peer, None when that life of it is gone.

        The stage that holds its layers here deals with the one that holds them there.
        """
        if peer is None:
            self._loop.call_soon(self._feed, _failed_move(effect, "peer gone"))
            return
        local_stage, near = self._shape.side(effect.chunk, effect.local_blocks)
        remote_stage, far = peer.side(effect.chunk, effect.remote_blocks)
        order = PutOrder(
            peer_id=effect.peer_id,
            peer_epoch=effect.peer_epoch,
            reservation_id=effect.reservation_id,
            chunk_id=effect.chunk.chunk_id,
            direction="write" if effect.write else "read",
            runs=self._runs_between(effect, near, far),
            local_stage=local_stage,
            remote_stage=remote_stage,
        )
        if self._staging is None or not effect.write:
            self._put(effect, order)
            return

        def staged(error: str) -> None:
            if error:
                self._feed(_failed_move(effect, error))
            else:
                self._put(effect, order)

        self._staging.copy_out(effect.reservation_id, effect.chunk, effect.local_blocks, staged)

    def _runs_between(
        self, effect: MoveChunk, near: Side, far: Side
    ) -> tuple[tuple[int, int, int], ...]:
        reblock, chunk = effect.reblock, effect.chunk
        if reblock is None:
            return block_runs(self._layout, chunk, near, far)
        if effect.write:
            return tuple(reblocked_runs(self._layout, chunk, reblock, near, far))
        runs = reblocked_runs(self._layout, chunk, reblock, far, near)
        return tuple((target, origin, nbytes) for origin, target, nbytes in runs)

    def _put(self, effect: MoveChunk, order: PutOrder) -> None:
        try:
            self._plane.put(order)
        except LocalProtocolError as error:  # too many orders are outstanding: this one fails
            self._loop.call_soon(self._feed, _failed_move(effect, str(error)))

    def digest(self, effect: DigestChunk) -> None:
        """Settle a chunk in this worker's memory and sum it."""
        if self._staging is None or effect.inward:
            self._sum(effect)
            return

        def staged(error: str) -> None:
            if error:
                self._feed(_digested(effect, 0, error))
            else:
                self._sum(effect)

        self._staging.copy_out(effect.reservation_id, effect.chunk, effect.local_blocks, staged)

    def _sum(self, effect: DigestChunk) -> None:
        if not self._checksum:
            self._loop.call_soon(self._settle, effect, 0, "")
            return
        chunk, reblock = effect.chunk, effect.reblock
        stage, side = self._shape.side(chunk, effect.local_blocks)
        if reblock is None:
            runs = local_runs(self._layout, chunk, side)
        else:
            runs = reblocked_local_runs(self._layout, chunk, reblock, side, inward=effect.inward)
        order = DigestOrder(
            reservation_id=effect.reservation_id,
            chunk_id=effect.chunk.chunk_id,
            runs=runs,
            stage=stage,
        )
        try:
            self._digests[self._plane.digest(order)] = effect
        except LocalProtocolError as error:
            self._loop.call_soon(self._feed, _digested(effect, 0, str(error)))

    def cancel(self, reservation_id: int) -> None:
        """Stop all I/O of a reservation; one IoQuiesced follows."""
        if self._staging is None:
            self._plane.cancel(reservation_id)
        else:
            self._staging.cancel(reservation_id, lambda: self._plane.cancel(reservation_id))

    # -- completions ---------------------------------------------------------------------------

    def on_readable(self) -> None:
        """The plane has completions."""
        for completion in self._plane.poll():
            match completion:
                case Received():
                    self._feed(_arrived(completion))
                case Quiesced(reservation_id=reservation_id):
                    self._feed(IoQuiesced(reservation_id=reservation_id))
                case Finished():
                    self._on_finished(completion)

    def _on_finished(self, done: Finished) -> None:
        error = f"{done.error} {done.detail}".strip() if done.error else ""
        effect = self._digests.pop(done.handle, None)
        if effect is not None:
            self._settle(effect, done.checksum, error)
            return
        self._feed(
            ChunkMoved(
                reservation_id=done.reservation_id,
                chunk_id=done.chunk_id,
                nbytes=done.nbytes,
                checksum=done.checksum,
                duration_us=done.duration_us,
                error=error,
            )
        )

    def _settle(self, effect: DigestChunk, checksum: int, error: str) -> None:
        if error or self._staging is None or not effect.inward:
            self._feed(_digested(effect, checksum, error))
            return
        self._staging.copy_in(
            effect.reservation_id,
            effect.chunk,
            effect.local_blocks,
            lambda error: self._feed(_digested(effect, checksum, error)),
        )

    def close(self) -> None:
        """Stop the staging thread, if there is one."""
        if self._staging is not None:
            self._staging.close()


def _failed_move(effect: MoveChunk, error: str) -> ChunkMoved:
    return ChunkMoved(
        reservation_id=effect.reservation_id,
        chunk_id=effect.chunk.chunk_id,
        nbytes=0,
        checksum=0,
        error=error,
    )


def _digested(effect: DigestChunk, checksum: int, error: str) -> ChunkDigested:
    return ChunkDigested(
        reservation_id=effect.reservation_id,
        chunk_id=effect.chunk.chunk_id,
        checksum=checksum,
        error=error,
    )


def _arrived(received: Received) -> ChunkArrived:
    return ChunkArrived(
        source_id=received.source_id,
        source_epoch=received.source_epoch,
        reservation_id=received.reservation_id,
        chunk_id=received.chunk_id,
        nbytes=received.nbytes,
        checksum=received.checksum,
        framing_nbytes=received.framing_nbytes,
    )
