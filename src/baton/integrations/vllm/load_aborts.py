"""How a destination ends a load unpublished: vLLM hears of it once nobody can write the blocks."""

from baton.core.ids import Direction, Fence
from baton.core.messages import AbortTransfer
from baton.integrations.vllm.context import Context, PeerKey
from baton.integrations.vllm.loading import Loading
from baton.integrations.vllm.messages import Decline
from baton.integrations.vllm.orders import LoadEnded
from baton.integrations.vllm.outputs import LegLost

_MARGIN_US = 1_000_000


class LoadAborts:
    """Granted blocks stay in quarantine until both sides are quiet, or one is certainly so.

    A source that says nothing stops by itself: it writes only while its lease runs, which this
    side renews, and a piece that it posted ends within the move timeout.
    """

    def __init__(self, context: Context, loads: dict[str, Loading]) -> None:
        self._context = context
        self._loads = loads

    def by_reservation(self, reservation_id: int) -> Loading | None:
        """The load that fills the blocks of a reservation."""
        for loading in self._loads.values():
            transfer = loading.transfer
            if transfer is not None and transfer.fence.reservation_id == reservation_id:
                return loading
        return None

    def on_superseded(self, fence: Fence) -> None:
        """A newer generation of the same request begins: older ones are not wanted."""
        for loading in list(self._loads.values()):
            mine = loading.ticket.fence
            if mine.request_id == fence.request_id and mine.generation < fence.generation:
                self.fail(loading, "superseded")

    def on_order(self, vllm_id: str, reason: str = "request_aborted") -> None:
        """vLLM's request is over, or another leg of it is lost."""
        for loading in list(self._loads.values()):
            if loading.order.vllm_id == vllm_id:
                self.fail(loading, reason)

    def on_source_failed(self, loading: Loading, reason: str) -> None:
        """The source gave up; it will still say when it is quiet."""
        self.fail(loading, reason)

    def on_source_quiesced(self, fence: Fence) -> None:
        """No byte of this transfer comes any more; if nobody aborted it yet, it is over now."""
        loading = self._loads.get(fence.transfer_id)
        if loading is None or loading.transfer is None or loading.transfer.fence != fence:
            self._context.counters["stale_messages"] += 1
            return
        loading.transfer.remote_quiesced = True
        self.fail(loading, "source_gave_up")
        self._try_finish(loading)

    def on_peer_lost(self, key: PeerKey) -> None:
        """A source is dead: it cannot write any more, and what it had not sealed is gone."""
        for loading in list(self._loads.values()):
            if loading.source == key:
                if loading.transfer is not None:
                    loading.transfer.remote_quiesced = True
                self.fail(loading, "source_lost")
                self._try_finish(loading)

    def fail(self, loading: Loading, reason: str) -> None:
        """Stop everything of a load; the first reason counts."""
        if loading.abort_reason:
            return
        loading.abort_reason = reason
        if loading.order.num_legs > 1:
            self._context.emit(LegLost(vllm_id=loading.order.vllm_id, reason=reason))
        context, fence, transfer = self._context, loading.ticket.fence, loading.transfer
        context.counters["failed_loads"] += 1
        context.fences.fence(fence.request_id, fence.generation + 1)
        if transfer is None:
            unclaimed = Decline(fence=fence, capability=loading.ticket.capability)
            context.tell(loading.source, unclaimed)
            self._end(loading)
            return
        settings = context.settings
        loading.quiet_us = (
            context.now_us + 1000 * (settings.lease_ms + settings.move_timeout_ms) + _MARGIN_US
        )
        transfer.abort(reason)
        assert loading.incoming is not None
        loading.incoming.clear()
        context.cancel(transfer.fence)
        if loading.source not in context.peers:
            transfer.remote_quiesced = True
        self._ask(loading)
        if transfer.grant.direction is Direction.PULL:
            transfer.remote_quiesced = True  # only this side moves bytes
        self._try_finish(loading)

    def _ask(self, loading: Loading) -> None:
        transfer, context = loading.transfer, self._context
        assert transfer is not None
        loading.next_retry_us = context.now_us + 1000 * context.settings.retry_ms
        stop = AbortTransfer(fence=transfer.fence, reason=loading.abort_reason)
        context.tell(loading.source, stop)

    def on_io_quiesced(self, reservation_id: int) -> bool:
        """No local read of that reservation runs now. False when it is none of this side's."""
        loading = self.by_reservation(reservation_id)
        if loading is None or loading.transfer is None:
            return False
        loading.transfer.local_quiesced = True
        self._try_finish(loading)
        return True

    def repeat(self, loading: Loading) -> None:
        """Ask a source again that has not said that it is quiet; in the end it is."""
        transfer, now_us = loading.transfer, self._context.now_us
        assert transfer is not None
        if transfer.remote_quiesced:
            return
        if now_us >= loading.quiet_us:
            self._context.counters["quarantines_by_time"] += 1
            transfer.remote_quiesced = True
            self._try_finish(loading)
        elif now_us >= loading.next_retry_us:
            self._ask(loading)

    def _try_finish(self, loading: Loading) -> None:
        transfer = loading.transfer
        if transfer is not None and transfer.quiesced and loading.abort_reason:
            transfer.finish_abort()
            self._end(loading)

    def _end(self, loading: Loading) -> None:
        order = loading.order
        if self._loads.pop(loading.ticket.transfer_id, None) is None:
            return
        self._context.records.keep(loading.record(self._context))
        ended = LoadEnded(
            vllm_id=order.vllm_id, failed_blocks=order.block_ids, reason=loading.abort_reason
        )
        self._context.answer(ended)
