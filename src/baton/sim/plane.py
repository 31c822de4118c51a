"""The data plane of a simulated worker: one copy at a time, and bytes that may land late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved
from baton.core.manifest import ChunkSpec
from baton.sim.arithmetic import Rows, checksum
from baton.sim.faults import ChunkFault
from baton.sim.orders import Order, TransferQueue

if TYPE_CHECKING:
    from baton.sim.worker import SimWorker

_KINDS = ("corrupt", "fail", "late", "repeat", "contradict")


class SimPlane(TransferQueue):
    """Copies chunks between the rows of live workers.

    A copy that runs is finished, late or not. A write takes its bytes when it starts and lands
    them when it ends.
    """

    def __init__(self, worker: SimWorker) -> None:
        super().__init__(worker.after, worker.feed)
        self._worker = worker
        self.num_moves = 0
        self.num_digests = 0

    def _begin(self, order: Order) -> None:
        worker = self._worker
        if isinstance(order, DigestChunk):
            self.num_digests += 1
            fails = worker.counted_fault("digest", self.num_digests, ("digest",)) is not None
            worker.after(worker.hardware.digest_us, lambda: self._digest(order, fails=fails))
            return
        self.num_moves += 1
        fault = worker.counted_fault("chunk", self.num_moves, _KINDS)
        assert fault is None or isinstance(fault, ChunkFault)
        hardware = worker.hardware
        copy_us = hardware.copy_us + hardware.copy_us_per_kib * order.chunk.nbytes // 1024
        copy_us *= worker.slowness
        if fault is not None and fault.kind == "late":
            copy_us += fault.delay_us
        data = None
        if order.write:
            data = self._outgoing(worker, order)
        worker.after(copy_us, lambda: self._land(order, data, fault))

    def _chunk_rows(
        self, worker: SimWorker, chunk: ChunkSpec, blocks: Sequence[int], slots: slice
    ) -> Rows:
        """`[layer][row]` of a chunk: what `slots` name of the rows of its blocks."""
        layers = slice(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        rows: Rows = worker.rows[layers][:, list(blocks)].reshape(chunk.num_layers, -1)[:, slots]
        return rows

    def _outgoing(self, source: SimWorker, order: MoveChunk) -> Rows:
        blocks = order.local_blocks if order.write else order.remote_blocks
        return self._chunk_rows(source, order.chunk, blocks, _source_slots(order)).copy()

    def _digest(self, order: DigestChunk, *, fails: bool) -> None:
        slots = _destination_slots(order) if order.inward else _source_slots(order)
        rows = self._chunk_rows(self._worker, order.chunk, order.local_blocks, slots)
        value = self._checksum(rows)
        if self._finish(order):
            if fails:
                self._worker.world.mark("failed_read_backs")
            self._worker.feed(
                ChunkDigested(
                    reservation_id=order.reservation_id,
                    chunk_id=order.chunk.chunk_id,
                    checksum=0 if fails else value,
                    error="injected fault" if fails else "",
                )
            )

    def _checksum(self, rows: Rows) -> int:
        return checksum(rows) if self._worker.world.plan.transfer.checksum else 0

    def _land(self, order: MoveChunk, data: Rows | None, fault: ChunkFault | None) -> None:
        worker, world = self._worker, self._worker.world
        peer = world.workers.get(order.peer_id)
        error = ""
        if peer is None or peer.epoch != order.peer_epoch:
            error = "peer gone"
        elif world.network.is_partitioned(worker.worker_id, order.peer_id):
            error = "unreachable"
        elif fault is not None and fault.kind == "fail":
            error = "injected fault"
        value = 0
        if not error:
            assert peer is not None
            target, blocks = (
                (peer, order.remote_blocks) if order.write else (worker, order.local_blocks)
            )
            if data is None:
                data = self._outgoing(peer, order)
            value = self._checksum(data)
            if fault is not None and fault.kind == "corrupt":
                data[0, min(target.layout.block_size, data.shape[1]) - 1] ^= 1
            self._write(target, order, blocks, data)
            if not order.write:
                value = self._checksum(data)
            else:
                self._notify(peer, order, value, fault)
        if self._finish(order):
            worker.feed(
                ChunkMoved(
                    reservation_id=order.reservation_id,
                    chunk_id=order.chunk.chunk_id,
                    nbytes=order.chunk.nbytes if not error else 0,
                    checksum=value,
                    duration_us=worker.hardware.copy_us,
                    error=error,
                )
            )

    def _write(
        self, target: SimWorker, order: MoveChunk, blocks: Sequence[int], data: Rows
    ) -> None:
        chunk, size = order.chunk, target.layout.block_size
        layers = slice(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        positions = np.arange(data.shape[1])
        blocks_of_rows = np.asarray(blocks)[positions // size]
        np.asarray(target.rows)[layers, blocks_of_rows, positions % size] = data
        nbytes = chunk.nbytes
        target.world.observe(lambda o: o.landed(target, order.reservation_id, blocks, nbytes))

    def _notify(
        self, peer: SimWorker, order: MoveChunk, value: int, fault: ChunkFault | None
    ) -> None:
        worker = self._worker
        event = ChunkArrived(
            source_id=worker.worker_id,
            source_epoch=worker.epoch,
            reservation_id=order.reservation_id,
            chunk_id=order.chunk.chunk_id,
            nbytes=order.chunk.nbytes,
            checksum=value,
        )
        peer.after(worker.hardware.notify_us, lambda: peer.feed(event))
        if fault is not None and fault.kind == "repeat":
            peer.after(fault.delay_us, lambda: peer.feed(event))
        if fault is not None and fault.kind == "contradict":
            other = replace(event, checksum=value ^ 1)
            peer.after(worker.hardware.notify_us, lambda: peer.feed(other))


def _source_slots(order: Order) -> slice:
    """Which of the rows of the source's blocks a chunk carries."""
    reblock = order.reblock
    if reblock is None:
        return slice(None)
    return slice(reblock.source_slot, reblock.source_slot + reblock.num_rows)


def _destination_slots(order: Order) -> slice:
    """Which of the rows of the destination's blocks a chunk fills."""
    return slice(order.reblock.num_rows if order.reblock else None)
