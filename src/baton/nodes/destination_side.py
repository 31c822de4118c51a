"""The receiving half of a worker: reserve, receive, validate, publish, or abort and clean up."""

from collections.abc import Callable

from baton.core.effects import CancelIo, DigestChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    ChunksReady,
    CreditReturn,
    Denied,
    Published,
    Reserve,
    Reserved,
    Seal,
    SourceRelease,
)
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.incoming import Incoming
from baton.nodes.reservation import Denial, reserve
from baton.protocol.destination import Arrival, DestinationTransfer
from baton.protocol.directory import Directory, PublishOutcome
from baton.protocol.lease import LeaseTable
from baton.protocol.transfer import TransferState


class DestinationSide:
    """Owns every unpublished transfer by id; `admit` takes a published one to decode."""

    def __init__(
        self,
        context: WorkerContext,
        directory: Directory,
        admit: Callable[[DestinationTransfer], None],
        stop_compute: Callable[[Fence], bool],
        is_short: Callable[[], bool],
    ) -> None:
        self._context = context
        self._directory = directory
        self._admit = admit
        self._stop_compute = stop_compute
        self._is_short = is_short
        self.incoming: dict[str, Incoming] = {}
        self._by_reservation: dict[int, Incoming] = {}
        self.leases: LeaseTable[str] = LeaseTable()

    @property
    def num_reserved_blocks(self) -> int:
        """Blocks held for transfers that are neither published nor aborting."""
        return sum(
            len(incoming.transfer.block_table)
            for incoming in self.incoming.values()
            if incoming.transfer.state is not TransferState.ABORTING
        )

    # -- reserve -------------------------------------------------------------------------------

    def on_reserve(self, message: Reserve) -> None:
        """Hold storage for the whole entry and its predicted growth, or say why not."""
        fence, context = message.fence, self._context
        existing = self.incoming.get(fence.transfer_id)
        if existing is not None:
            context.counters["duplicate_messages"] += 1
            if existing.transfer.state is not TransferState.ABORTING:
                context.send(ROUTER, Reserved(grant=existing.transfer.grant))
            return
        if self._directory.lookup(fence.request_id, fence.generation) is not None:
            context.counters["duplicate_messages"] += 1
            return
        if self._directory.is_fenced(fence.request_id, fence.generation):
            context.counters["stale_messages"] += 1
            context.send(ROUTER, Denied(fence=fence, reason="stale_generation", transient=False))
            return
        self._supersede(fence)
        outcome = reserve(context, message, len(self.incoming), is_short=self._is_short())
        if isinstance(outcome, Denial):
            context.send(
                ROUTER, Denied(fence=fence, reason=outcome.reason, transient=outcome.transient)
            )
            return
        self._open(outcome)

    def _supersede(self, fence: Fence) -> None:
        self._directory.fence(fence.request_id, fence.generation)
        for incoming in list(self.incoming.values()):
            if incoming.fence.request_id == fence.request_id:
                self._abort(incoming, "superseded")

    def _open(self, transfer: DestinationTransfer) -> None:
        incoming = Incoming(transfer)
        grant = transfer.grant
        self.incoming[grant.fence.transfer_id] = incoming
        self._by_reservation[grant.fence.reservation_id] = incoming
        self._extend_lease(incoming)
        self._context.trace(
            "reserved",
            grant.fence,
            visible_tokens=grant.token_start,
            blocks=len(transfer.block_table),
        )
        self._context.send(ROUTER, Reserved(grant=grant))

    # -- receive -------------------------------------------------------------------------------

    def on_arrived(self, event: ChunkArrived) -> None:
        """A pushed chunk is RECEIVED; it counts for nothing until it was read back."""
        incoming = self._by_reservation.get(event.reservation_id)
        if incoming is None or not self._expects(incoming, event):
            self._context.counters["stale_chunks"] += 1
            return
        self._extend_lease(incoming)
        incoming.transfer.ledger.framing_nbytes += event.framing_nbytes
        self._receive(incoming, event.chunk_id, event.nbytes, event.checksum)

    def _expects(self, incoming: Incoming, event: ChunkArrived) -> bool:
        fence, grant = incoming.fence, incoming.transfer.grant
        is_source = (fence.source_id, fence.source_epoch) == (event.source_id, event.source_epoch)
        return is_source and grant.direction is Direction.PUSH

    def _receive(self, incoming: Incoming, chunk_id: int, nbytes: int, checksum: int) -> None:
        transfer = incoming.transfer
        arrival = transfer.arrive(chunk_id, nbytes, checksum)
        if arrival is Arrival.CORRUPT:
            self._context.counters["corrupt_chunks"] += 1
            self._abort(incoming, "duplicate_with_other_bytes")
        elif arrival is not Arrival.NEW:
            self._context.counters[f"{arrival}_chunks"] += 1
        else:
            spec = transfer.spec(chunk_id)
            self._context.emit(
                DigestChunk(
                    reservation_id=incoming.fence.reservation_id,
                    chunk=spec,
                    local_blocks=transfer.blocks_of(spec),
                    inward=True,
                )
            )

    def on_digested(self, event: ChunkDigested) -> None:
        """The bytes were read back from this worker's own memory: DEVICE_VISIBLE, or corrupt."""
        incoming = self._by_reservation.get(event.reservation_id)
        if incoming is None or incoming.transfer.state is not TransferState.TRANSFERRING:
            self._context.counters["stale_chunks"] += 1
            return
        if event.error:
            self._abort(incoming, f"read_back_failed: {event.error}")
            return
        self._see(incoming, event.chunk_id, event.checksum)

    def _see(self, incoming: Incoming, chunk_id: int, checksum: int) -> None:
        transfer, fence = incoming.transfer, incoming.fence
        spec = transfer.see(chunk_id, checksum)
        if transfer.grant.direction is Direction.PULL:
            incoming.window.release(spec.nbytes)
            self._read_more(incoming)
        else:
            self._context.send(fence.source_id, CreditReturn(fence=fence, chunk_ids=(chunk_id,)))
        if transfer.all_visible:
            self._context.trace("all_visible", fence)
        self._try_publish(incoming)

    # -- pull ----------------------------------------------------------------------------------

    def on_chunks_ready(self, message: ChunksReady) -> None:
        """These chunks may be read now; they are read as this side's credit allows."""
        incoming = self._live(message.fence)
        if incoming is None:
            return
        transfer = incoming.transfer
        if transfer.grant.direction is not Direction.PULL:
            self._abort(incoming, "direction_mismatch")
            return
        if len(message.source_block_ids) != len(transfer.grant.block_ids):
            self._abort(incoming, "source_block_count_mismatch")
            return
        transfer.source_blocks = message.source_block_ids
        self._extend_lease(incoming)
        incoming.offer(message.chunk_ids)
        self._read_more(incoming)

    def _read_more(self, incoming: Incoming) -> None:
        for read in incoming.next_reads():
            self._context.emit(read)

    def on_moved(self, event: ChunkMoved) -> None:
        """A read that this side ordered has ended."""
        incoming = self._by_reservation.get(event.reservation_id)
        if incoming is None or incoming.transfer.state is TransferState.ABORTING:
            self._context.counters["stale_chunks"] += 1
            return
        if event.error:
            self._context.counters["transfer_errors"] += 1
            self._abort(incoming, f"transfer_failed: {event.error}")
            return
        self._receive(incoming, event.chunk_id, event.nbytes, event.checksum)

    # -- publish -------------------------------------------------------------------------------

    def on_seal(self, message: Seal) -> None:
        """The source's manifest. One that was acknowledged before is acknowledged again."""
        incoming = self.incoming.get(message.fence.transfer_id)
        if incoming is None:
            self._answer_unknown_seal(message.fence)
            return
        if incoming.fence != message.fence:
            self._context.counters["stale_messages"] += 1
            return
        transfer = incoming.transfer
        if transfer.state is TransferState.ABORTING:
            return
        if transfer.manifest is not None and transfer.manifest != message.manifest:
            self._abort(incoming, "second_manifest_differs")
            return
        transfer.manifest = message.manifest
        self._extend_lease(incoming)
        self._try_publish(incoming)

    def _answer_unknown_seal(self, fence: Fence) -> None:
        context = self._context
        entry = self._directory.lookup(fence.request_id, fence.generation)
        if entry is not None and entry.reservation_id == fence.reservation_id:
            context.counters["duplicate_publications"] += 1
            context.send(fence.source_id, SourceRelease(fence=fence))
            return
        context.counters["stale_publications"] += 1
        context.send(fence.source_id, AbortTransfer(fence=fence, reason="not_reserved"))

    def _try_publish(self, incoming: Incoming) -> None:
        transfer, context = incoming.transfer, self._context
        live = transfer.state in (TransferState.RESERVED, TransferState.TRANSFERRING)
        if not live or transfer.manifest is None or not transfer.all_visible:
            return
        defect = transfer.defect()
        if defect:
            context.counters["validation_failures"] += 1
            self._abort(incoming, defect)
            return
        transfer.validate()
        context.trace("validated", incoming.fence)
        outcome = self._directory.publish(transfer.entry())
        if outcome is not PublishOutcome.PUBLISHED:
            context.counters[f"{outcome}_publications"] += 1
            self._abort(incoming, f"{outcome}_publication")
            return
        transfer.published()
        context.count_handoff(transfer.ledger, remote=not incoming.fence.colocated)
        context.trace("published", incoming.fence, num_tokens=transfer.grant.num_tokens)
        cached = transfer.manifest.num_cached_tokens
        context.send(ROUTER, Published(fence=incoming.fence, cached_tokens=cached))
        self._forget(incoming)
        self._admit(transfer)
        if not incoming.fence.colocated:
            context.send(incoming.fence.source_id, SourceRelease(fence=incoming.fence))

    # -- abort ---------------------------------------------------------------------------------

    def on_source_failed(self, fence: Fence, reason: str) -> None:
        """The source gave up; it will still say when it is quiet."""
        incoming = self._live(fence)
        if incoming is not None:
            self._abort(incoming, reason)

    def on_source_quiesced(self, fence: Fence) -> None:
        """No byte of this transfer comes any more; if nobody aborted it yet, it is over now."""
        incoming = self.incoming.get(fence.transfer_id)
        if incoming is None or incoming.fence != fence:
            self._context.counters["stale_messages"] += 1
            return
        incoming.transfer.remote_quiesced = True
        self._abort(incoming, "source_gave_up")

    def on_cancel(self, fence: Fence, reason: str) -> bool:
        """Abort an unpublished attempt; False when there is none."""
        incoming = self.incoming.get(fence.transfer_id)
        if incoming is None:
            return False
        if fence.reservation_id in (0, incoming.fence.reservation_id):
            self._abort(incoming, reason)
        return True

    def _abort(self, incoming: Incoming, reason: str) -> None:
        transfer, fence, context = incoming.transfer, incoming.fence, self._context
        if transfer.state is TransferState.ABORTING:
            self._try_finish_abort(incoming)
            return
        transfer.abort(reason)
        context.counters["aborts"] += 1
        context.counters["handoff_retried_bytes"] += transfer.arrived_nbytes
        context.trace("aborting", fence, reason=reason)
        self._directory.fence(fence.request_id, fence.generation + 1)
        incoming.clear()
        context.memory.quarantine(transfer.block_table, transfer.grant.block_ids)
        if fence.colocated:
            transfer.remote_quiesced = True
            transfer.local_quiesced = self._stop_compute(fence)
        else:
            context.emit(CancelIo(reservation_id=fence.reservation_id))
            if not context.is_live_peer(fence.source_id, fence.source_epoch):
                transfer.remote_quiesced = True
            elif not transfer.remote_quiesced:
                self._ask_abort(incoming)
        self._try_finish_abort(incoming)

    def _ask_abort(self, incoming: Incoming) -> None:
        transfer, context = incoming.transfer, self._context
        transfer.next_retry_us = context.now_us + context.transfer.retry_ms * 1000
        context.send(
            incoming.fence.source_id,
            AbortTransfer(fence=incoming.fence, reason=transfer.abort_reason),
        )

    def on_io_quiesced(self, reservation_id: int) -> None:
        """No local read or read-back of this reservation runs any more."""
        incoming = self._by_reservation.get(reservation_id)
        if incoming is not None and incoming.transfer.state is TransferState.ABORTING:
            incoming.transfer.local_quiesced = True
            self._try_finish_abort(incoming)

    def on_compute_stopped(self, fence: Fence) -> None:
        """Colocated: the batch that wrote the blocks is over."""
        incoming = self.incoming.get(fence.transfer_id)
        if incoming is not None and incoming.transfer.state is TransferState.ABORTING:
            incoming.transfer.local_quiesced = True
            self._try_finish_abort(incoming)

    def _try_finish_abort(self, incoming: Incoming) -> None:
        transfer = incoming.transfer
        if not transfer.quiesced:
            return
        transfer.finish_abort()
        self._context.memory.end_quarantine(transfer.grant.block_ids)
        self._context.trace("aborted", incoming.fence, reason=transfer.abort_reason)
        self._context.send(ROUTER, Aborted(fence=incoming.fence, reason=transfer.abort_reason))
        self._forget(incoming)

    def _forget(self, incoming: Incoming) -> None:
        del self.incoming[incoming.fence.transfer_id]
        del self._by_reservation[incoming.fence.reservation_id]
        self.leases.drop(incoming.fence.transfer_id)

    def on_peer_lost(self, worker_id: str, epoch: int) -> None:
        """A source died: it cannot write any more, and what it had not sealed is gone."""
        for incoming in list(self.incoming.values()):
            fence = incoming.fence
            if (fence.source_id, fence.source_epoch) == (worker_id, epoch):
                incoming.transfer.remote_quiesced = True
                self._abort(incoming, "source_lost")

    # -- time ----------------------------------------------------------------------------------

    def _live(self, fence: Fence) -> Incoming | None:
        incoming = self.incoming.get(fence.transfer_id)
        aborting = incoming is not None and incoming.transfer.state is TransferState.ABORTING
        if incoming is None or incoming.fence != fence or aborting:
            self._context.counters["stale_messages"] += 1
            return None
        return incoming

    def _extend_lease(self, incoming: Incoming) -> None:
        lease_us = self._context.transfer.lease_ms * 1000
        self.leases.set(incoming.fence.transfer_id, self._context.now_us + lease_us)

    def renew(self, fence: Fence) -> None:
        """The source says this handoff is alive there."""
        incoming = self.incoming.get(fence.transfer_id)
        if incoming is not None and incoming.fence == fence:
            self._extend_lease(incoming)

    def on_tick(self) -> None:
        """Expire leases and repeat what was not answered."""
        for transfer_id in self.leases.pop_expired(self._context.now_us):
            incoming = self.incoming[transfer_id]
            if incoming.transfer.state is TransferState.ABORTING:
                continue
            if incoming.fence.colocated and incoming.transfer.state is not TransferState.RESERVED:
                self._extend_lease(incoming)  # being computed here: the router's deadline bounds it
                continue
            self._context.counters["expired_leases"] += 1
            self._abort(incoming, "destination_lease_expired")
        for incoming in list(self.incoming.values()):
            self._repeat(incoming)

    def _repeat(self, incoming: Incoming) -> None:
        """Say again what may have been lost; every repeat is idempotent at the source."""
        transfer, fence, context = incoming.transfer, incoming.fence, self._context
        if transfer.state is TransferState.TRANSFERRING:
            visible = transfer.visible_chunks
            if visible and transfer.grant.direction is Direction.PUSH:
                context.send(fence.source_id, CreditReturn(fence=fence, chunk_ids=visible))
        elif transfer.state is TransferState.ABORTING and not transfer.remote_quiesced:
            if not context.is_live_peer(fence.source_id, fence.source_epoch):
                transfer.remote_quiesced = True
                self._try_finish_abort(incoming)
            elif context.now_us >= transfer.next_retry_us:
                self._ask_abort(incoming)
