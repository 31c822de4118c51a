"""How a destination ends a transfer unpublished: quarantine until nobody writes any more."""

from collections.abc import Callable

from baton.core.effects import CancelIo
from baton.core.ids import Fence
from baton.core.messages import Aborted, AbortTransfer
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.incoming import Incoming
from baton.nodes.incoming_table import IncomingTable
from baton.protocol.directory import Directory
from baton.protocol.transfer import TransferState


class DestinationAborts:
    """Granted blocks stay in quarantine until both sides are quiet; then they are freed, once."""

    def __init__(
        self,
        context: WorkerContext,
        directory: Directory,
        table: IncomingTable,
        stop_compute: Callable[[Fence], bool],
    ) -> None:
        self._context = context
        self._directory = directory
        self._table = table
        self._stop_compute = stop_compute

    def on_source_failed(self, fence: Fence, reason: str) -> None:
        """The source gave up; it will still say when it is quiet."""
        incoming = self._table.live(fence)
        if incoming is not None:
            self.abort(incoming, reason)

    def on_source_quiesced(self, fence: Fence) -> None:
        """No byte of this transfer comes any more; if nobody aborted it yet, it is over now."""
        incoming = self._table.by_transfer.get(fence.transfer_id)
        if incoming is None or incoming.fence != fence:
            self._context.counters["stale_messages"] += 1
            return
        incoming.transfer.remote_quiesced = True
        self.abort(incoming, "source_gave_up")

    def on_cancel(self, fence: Fence, reason: str) -> bool:
        """Abort an unpublished attempt; False when there is none."""
        incoming = self._table.by_transfer.get(fence.transfer_id)
        if incoming is None:
            return False
        if fence.reservation_id in (0, incoming.fence.reservation_id):
            self.abort(incoming, reason)
        return True

    def on_peer_lost(self, worker_id: str, epoch: int, *, ended: bool) -> None:
        """A source is gone, and what it had not sealed with it.

        A dead process writes no more. One that was only given up may run on where nobody sees it:
        what it may write into stays in quarantine until it says that it is quiet, or is dead.
        """
        for incoming in list(self._table.by_transfer.values()):
            fence = incoming.fence
            if (fence.source_id, fence.source_epoch) == (worker_id, epoch):
                quiet = ended or not incoming.is_writable
                incoming.transfer.remote_quiesced |= quiet
                self._context.counters["unproven_sources"] += not incoming.transfer.remote_quiesced
                self.abort(incoming, "source_lost")

    def unproven(self) -> tuple[tuple[str, int], ...]:
        """Lives that were given up and may still write into what is in quarantine here."""
        lives = {
            (incoming.fence.source_id, incoming.fence.source_epoch)
            for incoming in self._table.by_transfer.values()
            if not incoming.transfer.remote_quiesced
        }
        return tuple(sorted(life for life in lives if not self._context.is_live_peer(*life)))

    def on_superseded(self, fence: Fence) -> None:
        """A newer generation of the same request reserves: older ones are not wanted."""
        for incoming in list(self._table.by_transfer.values()):
            if incoming.fence.request_id == fence.request_id:
                self.abort(incoming, "superseded")

    def on_revoked(self, route_epoch: int) -> None:
        """What was reserved below that route epoch may not be filled by a peer any more."""
        for incoming in list(self._table.by_transfer.values()):
            grant = incoming.transfer.grant
            if grant.route_epoch < route_epoch and not grant.fence.colocated:
                self.abort(incoming, "routes_revoked")

    def on_cache_cleared(self) -> None:
        """History that was read before the clear may not be named after it."""
        for incoming in list(self._table.by_transfer.values()):
            if incoming.transfer.grant.is_copy:
                self.abort(incoming, "cache_cleared")

    def abort(self, incoming: Incoming, reason: str) -> None:
        """Stop everything of a transfer; the first reason counts."""
        transfer, fence, context = incoming.transfer, incoming.fence, self._context
        if transfer.state is TransferState.ABORTING:
            self._try_finish(incoming)
            return
        transfer.abort(reason)
        context.counters["aborts"] += 1
        kind = "copy" if transfer.grant.is_copy else "handoff"
        context.counters[f"{kind}_retried_bytes"] += transfer.arrived_nbytes
        context.trace("aborting", fence, reason=reason, retried_nbytes=transfer.arrived_nbytes)
        self._directory.fence(fence.request_id, fence.generation + 1)
        incoming.clear()
        context.memory.quarantine(transfer.block_table, transfer.grant.block_ids)
        if fence.colocated:
            transfer.remote_quiesced = True
            transfer.local_quiesced = self._stop_compute(fence)
        else:
            context.emit(CancelIo(reservation_id=fence.reservation_id))
            self._quiet_or_ask(incoming)
        self._try_finish(incoming)

    def _quiet_or_ask(self, incoming: Incoming) -> None:
        """Whoever is gone and was never let in is quiet; anybody else has to say so."""
        transfer, fence, context = incoming.transfer, incoming.fence, self._context
        if transfer.remote_quiesced:
            return
        is_live = context.is_live_peer(fence.source_id, fence.source_epoch)
        if not is_live and not incoming.is_writable:
            transfer.remote_quiesced = True
            return
        transfer.next_retry_us = context.now_us + context.transfer.retry_ms * 1000
        if is_live or fence.source_id not in context.peers:  # a newer life cannot answer for it
            context.send(fence.source_id, AbortTransfer(fence=fence, reason=transfer.abort_reason))

    def on_io_quiesced(self, reservation_id: int) -> None:
        """No local read or read-back of this reservation runs any more."""
        incoming = self._table.by_reservation.get(reservation_id)
        if incoming is not None:
            self._on_local_quiet(incoming)

    def on_compute_stopped(self, fence: Fence) -> None:
        """Colocated: the batch that wrote the blocks is over."""
        incoming = self._table.by_transfer.get(fence.transfer_id)
        if incoming is not None:
            self._on_local_quiet(incoming)

    def _on_local_quiet(self, incoming: Incoming) -> None:
        if incoming.transfer.state is TransferState.ABORTING:
            incoming.transfer.local_quiesced = True
            self._try_finish(incoming)

    def _try_finish(self, incoming: Incoming) -> None:
        transfer = incoming.transfer
        if not transfer.quiesced:
            return
        transfer.finish_abort()
        self._context.memory.end_quarantine(transfer.grant.block_ids)
        self._context.trace("aborted", incoming.fence, reason=transfer.abort_reason)
        self._context.send(ROUTER, Aborted(fence=incoming.fence, reason=transfer.abort_reason))
        self._table.forget(incoming)

    def repeat(self, incoming: Incoming) -> None:
        """Ask a source again that has not said that it is quiet."""
        transfer = incoming.transfer
        if transfer.state is not TransferState.ABORTING or transfer.remote_quiesced:
            return
        if self._context.now_us >= transfer.next_retry_us:
            self._quiet_or_ask(incoming)
            self._try_finish(incoming)
