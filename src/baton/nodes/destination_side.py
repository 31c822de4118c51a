"""The receiving half of a worker: reserve, receive, validate, publish, or abort and clean up."""

from collections.abc import Callable

from baton.core.effects import DigestChunk
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence
from baton.core.messages import (
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
from baton.nodes.destination_aborts import DestinationAborts
from baton.nodes.destination_rights import DestinationRights
from baton.nodes.incoming import Incoming
from baton.nodes.incoming_table import IncomingTable
from baton.nodes.inserted_copies import InsertedCopies
from baton.nodes.reservation import Denial, reserve
from baton.protocol.destination import Arrival, DestinationTransfer
from baton.protocol.directory import Directory, PublishOutcome
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
        announce: Callable[[], None],
    ) -> None:
        self._context = context
        self._announce = announce
        self._directory = directory
        self._admit = admit
        self._is_short = is_short
        self.table = IncomingTable(context)
        self._inserted = InsertedCopies()
        self.incoming = self.table.by_transfer
        self.leases = self.table.leases
        self.aborts = DestinationAborts(context, directory, self.table, stop_compute)
        self.rights = DestinationRights(context, directory, self.table, self.aborts)

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
        if self._inserted.knows(fence.transfer_id):
            context.counters["duplicate_messages"] += 1
            done = self._inserted.fence(fence.transfer_id)
            context.send(ROUTER, Published(fence=done, cached_tokens=0))
            return
        if self._directory.is_fenced(fence.request_id, fence.generation):
            context.counters["stale_messages"] += 1
            context.send(ROUTER, Denied(fence=fence, reason="stale_generation", transient=False))
            return
        if not fence.colocated and message.route_epoch < context.gate.revoked_below:
            context.send(ROUTER, Denied(fence=fence, reason="routes_revoked", transient=False))
            return
        self._directory.fence(fence.request_id, fence.generation)
        self.aborts.on_superseded(fence)
        outcome = reserve(context, message, len(self.incoming), is_short=self._is_short())
        if isinstance(outcome, Denial):
            context.send(
                ROUTER, Denied(fence=fence, reason=outcome.reason, transient=outcome.transient)
            )
            return
        self._open(outcome)

    def _open(self, transfer: DestinationTransfer) -> None:
        incoming = Incoming(transfer)
        grant = transfer.grant
        self.table.open(incoming)
        is_handoff = not (grant.is_copy or grant.fence.colocated)
        self._context.counters["handoff_attempts"] += is_handoff
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
        incoming = self.table.by_reservation.get(event.reservation_id)
        if incoming is None or not self._expects(incoming, event):
            self._context.counters["stale_chunks"] += 1
            return
        if not self.rights.admits_arrival(incoming):
            return
        self.table.extend_lease(incoming)
        self._context.trace("chunk_arrived", incoming.fence, chunk_id=event.chunk_id)
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
            self.aborts.abort(incoming, "duplicate_with_other_bytes")
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
                    reblock=transfer.reblock_of(spec),
                )
            )

    def on_digested(self, event: ChunkDigested) -> None:
        """The bytes were read back from this worker's own memory: DEVICE_VISIBLE, or corrupt."""
        incoming = self.table.by_reservation.get(event.reservation_id)
        if incoming is None or incoming.transfer.state is not TransferState.TRANSFERRING:
            self._context.counters["stale_chunks"] += 1
            return
        if event.error:
            self.aborts.abort(incoming, f"read_back_failed: {event.error}")
            return
        self._see(incoming, event.chunk_id, event.checksum)

    def _see(self, incoming: Incoming, chunk_id: int, checksum: int) -> None:
        transfer, fence = incoming.transfer, incoming.fence
        spec = transfer.see(chunk_id, checksum)
        self._context.trace(
            "chunk_visible",
            fence,
            chunk_id=chunk_id,
            layer_start=spec.layer_start,
            num_layers=spec.num_layers,
            nbytes=spec.nbytes,
        )
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
        incoming = self.table.live(message.fence)
        if incoming is None:
            return
        transfer = incoming.transfer
        if transfer.grant.direction is not Direction.PULL:
            self.aborts.abort(incoming, "direction_mismatch")
            return
        if len(message.source_block_ids) != transfer.num_source_blocks:
            self.aborts.abort(incoming, "source_block_count_mismatch")
            return
        if not self.rights.admits_offer(incoming, message):
            return
        transfer.source_blocks = message.source_block_ids
        self.table.extend_lease(incoming)
        incoming.offer(message.chunk_ids)
        self._read_more(incoming)

    def _read_more(self, incoming: Incoming) -> None:
        for read in incoming.next_reads():
            self._context.emit(read)

    def on_moved(self, event: ChunkMoved) -> None:
        """A read that this side ordered has ended."""
        incoming = self.table.by_reservation.get(event.reservation_id)
        if incoming is None or incoming.transfer.state is TransferState.ABORTING:
            self._context.counters["stale_chunks"] += 1
            return
        self._context.trace_moved(incoming.fence, event)
        if event.error:
            self._context.counters["transfer_errors"] += 1
            self.aborts.abort(incoming, f"transfer_failed: {event.error}")
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
            self.aborts.abort(incoming, "second_manifest_differs")
            return
        transfer.manifest = message.manifest
        self.table.extend_lease(incoming)
        self._try_publish(incoming)

    def _answer_unknown_seal(self, fence: Fence) -> None:
        context = self._context
        if self._inserted.is_of(fence):
            context.counters["duplicate_publications"] += 1
            context.send(fence.source_id, SourceRelease(fence=fence))
            return
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
            self.aborts.abort(incoming, defect)
            return
        transfer.validate()
        context.trace("validated", incoming.fence)
        outcome = self._directory.publish(transfer.entry())
        if outcome is not PublishOutcome.PUBLISHED:
            context.counters[f"{outcome}_publications"] += 1
            self.aborts.abort(incoming, f"{outcome}_publication")
            return
        transfer.published()
        is_copy, remote = transfer.grant.is_copy, not incoming.fence.colocated
        context.count_transfer(transfer.ledger, is_copy=is_copy, remote=remote)
        self._trace_published(transfer)
        if is_copy:
            self._insert(transfer)
            self._announce()  # whoever waited for it is routed by what is held here now
        cached = transfer.manifest.num_cached_tokens
        context.send(ROUTER, Published(fence=incoming.fence, cached_tokens=cached))
        self.table.forget(incoming)
        if not is_copy:
            self._admit(transfer)
        if remote:
            context.send(incoming.fence.source_id, SourceRelease(fence=incoming.fence))

    def _trace_published(self, transfer: DestinationTransfer) -> None:
        """What became readable, of how many chunks and layers, and the bytes that it took."""
        account, fence = transfer.ledger, transfer.fence
        ledgers = {
            "logical_nbytes": account.logical_nbytes,
            "padding_nbytes": account.padding_nbytes,
            "duplicate_nbytes": account.duplicate_nbytes,
            "framing_nbytes": account.framing_nbytes,
        }
        self._context.trace(
            "published",
            fence,
            num_tokens=transfer.grant.num_tokens,
            num_chunks=len(transfer.plan),
            num_layers=self._context.layout.num_layers,
            **{name: nbytes for name, nbytes in ledgers.items() if nbytes},
        )

    def _insert(self, transfer: DestinationTransfer) -> None:
        """A copy of history is published: its blocks get their names and nobody holds them (0x09B).

        The names are made of the tokens that the router asked for, which the manifest's digest was
        compared with, and never of anything that a peer says.
        """
        fence, memory = transfer.fence, self._context.memory
        hashes = memory.hashes(transfer.request, transfer.request.prompt_token_ids)
        memory.insert(transfer.block_table, hashes, len(hashes))
        memory.free(transfer.block_table)
        self._inserted.add(fence)
        self._directory.unpublish(fence.request_id, fence.generation)
        self._context.counters["inserted_copies"] += 1
        self._context.counters["inserted_blocks"] += len(transfer.grant.block_ids)
        self._context.trace("inserted", fence, num_tokens=transfer.grant.num_tokens)

    # -- time ----------------------------------------------------------------------------------

    def on_tick(self) -> None:
        """Expire leases and repeat what was not answered."""
        for transfer_id in self.leases.pop_expired(self._context.now_us):
            incoming = self.incoming[transfer_id]
            if incoming.transfer.state is TransferState.ABORTING:
                continue
            if incoming.fence.colocated and incoming.transfer.state is not TransferState.RESERVED:
                self.table.extend_lease(
                    incoming
                )  # being computed here: the router's deadline bounds it
                continue
            self._context.counters["expired_leases"] += 1
            self.aborts.abort(incoming, "destination_lease_expired")
        for incoming in list(self.incoming.values()):
            self._repeat_credit(incoming)
            self.aborts.repeat(incoming)

    def _repeat_credit(self, incoming: Incoming) -> None:
        """Say again what may have been lost; every repeat is idempotent at the source."""
        transfer, fence, context = incoming.transfer, incoming.fence, self._context
        if transfer.state is TransferState.TRANSFERRING:
            visible = transfer.visible_chunks
            if visible and transfer.grant.direction is Direction.PUSH:
                context.send(fence.source_id, CreditReturn(fence=fence, chunk_ids=visible))
