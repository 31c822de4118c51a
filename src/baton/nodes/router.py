"""The router node: admits, routes, retries and ends every request exactly once."""

from collections import Counter

import msgspec

from baton.config import CacheConfig, RouterConfig, TransferConfig
from baton.core import events, messages
from baton.core.delivery import Failed
from baton.core.effects import Effect
from baton.core.events import Event
from baton.core.ids import Fence
from baton.core.messages import Envelope, Message, fence_of
from baton.core.request import Request
from baton.core.snapshot import LoadSnapshot, WorkerInfo
from baton.nodes.attempts import Attempts
from baton.nodes.cache_generations import CacheGenerations
from baton.nodes.copies import Copies
from baton.nodes.fleet import Fleet, WorkerView
from baton.nodes.histories import Histories
from baton.nodes.history_copy import HistoryCopy
from baton.nodes.holdings import Holdings
from baton.nodes.record import RequestRecord
from baton.nodes.router_context import RouterContext
from baton.nodes.streams import Streams
from baton.protocol.copy import HistoryCopyState
from baton.protocol.request import RequestInput, RequestState
from baton.protocol.signing import Signer

_UNPUBLISHED = (RequestState.RESERVING, RequestState.PREFILLING)


class Router:
    """Owns every request from submission to its one end."""

    def __init__(
        self,
        config: RouterConfig,
        transfer: TransferConfig,
        cache: CacheConfig | None = None,
        *,
        signer: Signer,
    ) -> None:
        self.context = RouterContext(config, transfer, cache or CacheConfig(), signer)
        self.copies = Copies(self.context, self._on_copy_ended)
        self.histories = Histories(self.context, self.copies)
        self.generations = CacheGenerations(self.context, self.copies)
        self.holdings = Holdings(self.context)
        self._attempts = Attempts(self.context, self.histories.fetch)
        self._streams = Streams(self.context, self.histories.on_finished)
        self._next_tick_us = 0

    # -- the border ----------------------------------------------------------------------------

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """Take one event at the host's time and return what the host must do, in order."""
        self.context.now_us = now_us
        match event:
            case events.Received(envelope=envelope):
                self._on_envelope(envelope)
            case events.Submitted(request=request):
                self._on_submitted(request)
            case events.Cancelled(request_id=request_id, reason=reason):
                self._on_cancelled(request_id, reason)
            case events.WorkerLost(worker_id=worker_id, epoch=epoch, ended=ended):
                self._on_worker_lost(worker_id, epoch, ended=ended)
            case events.WorkerDraining(worker_id=worker_id, epoch=epoch):
                self.fleet.drain(worker_id, epoch)
            case events.CacheCleared():
                self.generations.clear()
            case events.RoutesRevoked(reason=reason):
                self._on_revoked(reason)
            case events.Tick():
                self._on_tick()
            case _:
                raise AssertionError(f"the router does not take {type(event).__name__}")
        self._attempts.route_waiting()
        return self.context.take_effects()

    def next_deadline(self) -> int | None:
        """When the host must call with a Tick at the latest; None while nothing is open."""
        return self._next_tick_us if self.records or self.copies else None

    def missing(self, now_us: int) -> str:
        """Why no request can be served now, or ""."""
        return self.fleet.missing(now_us)

    @property
    def fleet(self) -> Fleet:
        """The live workers."""
        return self.context.fleet

    @property
    def records(self) -> dict[str, RequestRecord]:
        """Open requests by id."""
        return self.context.records

    @property
    def counters(self) -> Counter[str]:
        """Named outcomes so far."""
        return self.context.counters

    @property
    def num_waiting(self) -> int:
        """Requests that have no route yet."""
        return len(self.context.waiting)

    # -- gateway -------------------------------------------------------------------------------

    def _on_submitted(self, request: Request) -> None:
        context = self.context
        assert request.request_id not in context.records
        record = RequestRecord(request, context.now_us, context.config.ttft_budget_ms * 1000)
        if not context.records:
            self._next_tick_us = context.now_us + context.transfer.retry_ms * 1000
        context.counters["requests"] += 1
        context.records[request.request_id] = record
        context.trace("arrived", record, num_tokens=record.num_tokens)
        refusal = self._refusal(record)
        if refusal is not None:
            record.machine.feed(RequestInput.REJECT)
            context.counters[f"rejected_{refusal.code}"] += 1
            context.trace("rejected", record, code=refusal.code, reason=refusal.message)
            context.end(record, refusal)
            return
        self.histories.on_submitted(record)
        context.waiting.append(request.request_id)

    def _refusal(self, record: RequestRecord) -> Failed | None:
        """Early rejection: before any compute, and with a time at which trying again may help."""
        context, config = self.context, self.context.config
        missing = context.fleet.missing(context.now_us)
        needed, largest = context.num_blocks(record), context.fleet.largest_pool()
        pending = context.pending_tokens()
        code, status, text = "queue_full", 429, ""
        if missing:
            code, status, text = "not_ready", 503, f"cannot serve now: {missing}"
        elif needed > largest:
            code, status = "too_large", 400
            text = f"the prompt needs {needed} K/V blocks, a worker has {largest}"
        elif len(context.waiting) >= config.max_waiting_requests:
            text = f"{len(context.waiting)} requests are waiting already"
        elif pending + record.num_tokens > config.max_pending_tokens:
            text = f"{pending} prompt tokens are waiting already"
        if not text:
            return None
        retry_after_s = None if status == 400 else context.retry_after_s()
        return Failed(code=code, message=text, status=status, retry_after_s=retry_after_s)

    def _on_cancelled(self, request_id: str, reason: str) -> None:
        context = self.context
        record = context.records.get(request_id)
        if record is None or record.state is RequestState.CANCELLING:
            return
        context.counters["cancelled"] += reason != "stop"
        record.cancel_reason = reason
        is_waiting = record.state is RequestState.NEW  # else a copy is under way, for others too
        record.machine.feed(RequestInput.CANCEL)
        context.trace("cancel", record, reason=reason)
        if record.state is RequestState.CANCELLED:
            if is_waiting:
                context.waiting.remove(request_id)
            context.end_cancelled(record, None)
            return
        assert record.fence is not None
        record.attempt_deadline_us = context.now_us + 2 * context.transfer.lease_ms * 1000
        context.cancel_attempt(record.fence, reason)

    # -- workers -------------------------------------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        context, message = self.context, envelope.message
        if isinstance(message, messages.Hello):
            self._on_hello(message.info)
            return
        view = context.fleet.get(envelope.sender_id, envelope.sender_epoch)
        if view is None:
            context.counters["stale_messages"] += 1
            return
        view.last_seen_us = context.now_us
        if isinstance(message, messages.Load):
            self._on_load(view, message)
        elif isinstance(message, messages.TokenRows):
            self._streams.on_rows(message, view.info)
        elif isinstance(message, messages.CacheChanges | messages.CacheHoldings):
            self.holdings.on_message(view.info, message)
        else:
            self._on_fenced(view, message)

    def _on_fenced(self, view: WorkerView, message: Message) -> None:
        """Fence before kind: only the attempt that counts is heard."""
        fence = fence_of(message)
        if fence is not None and fence.request_id in self.copies:
            if _is_party(view.info, fence, message):
                self.copies.on_message(fence, message)
            else:
                self.counters["foreign_messages"] += 1
            return
        record = self.records.get(fence.request_id) if fence is not None else None
        if fence is not None and not _is_party(view.info, fence, message):
            self.counters["foreign_messages"] += 1
            return
        if fence is None or record is None or not record.is_current(fence):
            self.counters["stale_messages"] += 1
            if fence is not None:
                self._answer_stale(view, fence, message)
            return
        match message:
            case messages.Reserved():
                self._attempts.on_reserved(record, message)
            case messages.Accepted():
                self._attempts.on_accepted(record)
            case messages.Denied():
                self._attempts.on_denied(record, message)
            case messages.Published():
                self._streams.on_published(record, message)
            case messages.Done():
                self._streams.on_done(record, message)
            case messages.Aborted(reason=reason):
                self._attempts.on_failed(record, reason)
            case _:
                self.counters["unexpected_messages"] += 1

    def _on_copy_ended(self, copy: HistoryCopy) -> None:
        """Whoever waited for it goes on, with the history or without it."""
        record = self.records.get(copy.waiter)
        if record is not None and record.state is RequestState.FETCHING:
            record.machine.feed(RequestInput.FETCHED)
            if copy.state is HistoryCopyState.INSERTED:
                record.fetched_to = copy.fence.destination_id
            self.context.release(record)
            self.context.waiting.appendleft(copy.waiter)

    def _answer_stale(self, view: WorkerView, fence: Fence, message: Message) -> None:
        """A superseded attempt must not keep anything: acknowledge its end, stop its life."""
        if isinstance(message, messages.Done):
            self.context.send(view.info.worker_id, messages.DoneAck(fence=fence))
        elif isinstance(message, messages.Reserved | messages.Published):
            self.context.cancel_attempt(fence, "superseded")

    def _on_hello(self, info: WorkerInfo) -> None:
        context = self.context
        current = context.fleet.get(info.worker_id)
        if current is not None and current.info.epoch == info.epoch:
            context.counters["duplicate_messages"] += 1  # the answer was lost
            context.send(info.worker_id, messages.Welcome(epoch=info.epoch))
            return
        newer = current is not None and current.info.epoch > info.epoch
        if newer or context.fleet.is_over(info.worker_id, info.epoch):
            context.counters["stale_messages"] += 1
            return
        if current is not None:
            self._on_worker_lost(info.worker_id, current.info.epoch, ended=False)
        reason = context.fleet.refusal(info)
        if reason:
            context.counters["refused_workers"] += 1
            context.send(info.worker_id, messages.Refused(reason=reason))
            return
        others = [view.info for view in context.fleet]
        context.fleet.join(info, context.now_us)
        self.holdings.on_joined(info)
        self.generations.on_joined(info.worker_id)
        context.rights.on_fleet_changed()
        context.send(info.worker_id, messages.Welcome(epoch=info.epoch))
        if context.rights.revoked_below:
            self._tell_revoked(info.worker_id)
        for other in others:
            context.send(other.worker_id, messages.PeerUp(info=info))
            context.send(info.worker_id, messages.PeerUp(info=other))

    def _on_load(self, view: WorkerView, message: messages.Load) -> None:
        last = view.snapshot
        if last is None or message.snapshot.version > last.version:
            snapshot = message.snapshot
            rates = snapshot.rates.plausible()
            if rates != snapshot.rates:
                self.counters["implausible_rates"] += 1
            view.snapshot = msgspec.structs.replace(snapshot, rates=rates)
            view.full = False
            self.holdings.on_snapshot(view.info, snapshot)
            self.generations.on_snapshot(snapshot)
            self._correct_peers(view, message.snapshot)
            if message.snapshot.revoked_below < self.context.rights.revoked_below:
                self._tell_revoked(view.info.worker_id)

    def _correct_peers(self, view: WorkerView, snapshot: LoadSnapshot) -> None:
        """Repeat what a worker has not heard of the others: who lives, and who is dead."""
        worker_id, believed = view.info.worker_id, snapshot.peers
        for other in self.fleet:
            info = other.info
            if info.worker_id != worker_id and believed.get(info.worker_id, -1) < info.epoch:
                self.context.send(worker_id, messages.PeerUp(info=info))
        for peer_id, epoch in believed.items():
            if self.fleet.get(peer_id) is None:
                self._tell_down(worker_id, peer_id, epoch)
        for peer_id, epoch in snapshot.unproven:
            if self.fleet.has_ended(peer_id, epoch):
                self._tell_down(worker_id, peer_id, epoch)

    def _tell_down(self, to: str, worker_id: str, epoch: int) -> None:
        ended = self.fleet.has_ended(worker_id, epoch)
        self.context.send(to, messages.PeerDown(worker_id=worker_id, epoch=epoch, ended=ended))

    def _on_worker_lost(self, worker_id: str, epoch: int, *, ended: bool) -> None:
        context = self.context
        is_news = ended and context.fleet.end(worker_id, epoch)
        was_here = context.fleet.leave(worker_id, epoch)
        for view in context.fleet if was_here or is_news else ():
            self._tell_down(view.info.worker_id, worker_id, epoch)
        if not was_here:
            return
        context.rights.on_fleet_changed()
        context.counters["workers_lost"] += 1
        context.counters["workers_given_up"] += not ended
        self.holdings.on_lost(worker_id)
        self.copies.on_worker_lost(worker_id, epoch)
        for record in list(context.records.values()):
            fence = record.fence
            if fence is None:
                continue
            if (fence.destination_id, fence.destination_epoch) == (worker_id, epoch):
                self._attempts.on_failed(record, "decode_worker_lost")
            elif (fence.source_id, fence.source_epoch) == (worker_id, epoch):
                # The destination was told too: its Aborted ends the attempt once it is quiet. Of a
                # source that may still write nobody knows when that is, so the next one starts now.
                record.avoid_prefill |= {worker_id}
                if not ended and record.state in _UNPUBLISHED:
                    context.cancel_attempt(fence, "source_lost")
                    self._attempts.on_failed(record, "source_lost")
                elif record.state is RequestState.RESERVING:
                    context.cancel_attempt(fence, "source_lost")

    def _on_revoked(self, reason: str) -> None:
        """Workers end what is not published, and their answers start the next attempts."""
        context = self.context
        context.rights.revoke()
        context.counters["route_revocations"] += 1
        context.trace_fleet("routes_revoked", reason=reason, route_epoch=context.rights.route_epoch)
        for view in context.fleet:
            self._tell_revoked(view.info.worker_id)

    def _tell_revoked(self, worker_id: str) -> None:
        below = self.context.rights.revoked_below
        self.context.send(worker_id, messages.RevokeRoutes(route_epoch=below))

    # -- time ----------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        context = self.context
        if context.now_us < self._next_tick_us:
            return
        retry_us = context.transfer.retry_ms * 1000
        self._next_tick_us = context.now_us + retry_us
        self.copies.on_tick()
        for record in list(context.records.values()):
            self._check_deadline(record, retry_us)

    def _check_progress(self, record: RequestRecord, retry_us: int) -> None:
        """A silent stream is asked to repeat itself, and given up when that brings nothing new."""
        context, waited_us = self.context, self.context.now_us - record.last_progress_us
        if waited_us >= context.config.decode_stall_ms * 1000:
            assert record.fence is not None
            context.cancel_attempt(record.fence, "decode_stalled")
            self._attempts.on_failed(record, "decode_stalled")
        elif waited_us >= 4 * retry_us and context.now_us >= record.next_resync_us:
            record.next_resync_us = context.now_us + 4 * retry_us
            self._streams.resync(record)

    def _check_deadline(self, record: RequestRecord, retry_us: int) -> None:
        context = self.context
        overdue = context.now_us >= record.attempt_deadline_us
        match record.state:
            case RequestState.NEW if context.now_us >= record.deadline_us:
                context.waiting.remove(record.request.request_id)
                waited_ms = (context.now_us - record.submitted_us) // 1000
                context.fail(record, "queue_timeout", f"no route within {waited_ms} ms")
            case RequestState.RESERVING | RequestState.PREFILLING if overdue:
                assert record.fence is not None
                context.cancel_attempt(record.fence, "attempt_timeout")
                self._attempts.on_failed(record, "attempt_timeout")
            case RequestState.RESERVING | RequestState.PREFILLING:
                self._attempts.repeat(record)
            case RequestState.DECODING:
                self._check_progress(record, retry_us)
            case RequestState.CANCELLING if overdue:
                record.machine.feed(RequestInput.END)
                context.end_cancelled(record, None)


def _is_party(sender: WorkerInfo, fence: Fence, message: Message) -> bool:
    """Only the destination speaks of its reservation and stream, only the source of its queue."""
    worker = (sender.worker_id, sender.epoch)
    is_source = worker == (fence.source_id, fence.source_epoch)
    is_destination = worker == (fence.destination_id, fence.destination_epoch)
    match message:
        case messages.Accepted():
            return is_source
        case messages.Denied():
            return is_source or is_destination
    return is_destination
