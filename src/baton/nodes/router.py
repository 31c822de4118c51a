"""The router node: admits, routes, retries and ends every request exactly once."""

from collections import Counter, deque

from baton.config import RouterConfig, TransferConfig
from baton.core import events, messages
from baton.core.delivery import Delivery, Failed, Finished, Started, Tokens
from baton.core.effects import Deliver, Effect, Send, Trace
from baton.core.events import Event
from baton.core.finish import finish_reason
from baton.core.ids import Fence, Mode, Schedule
from baton.core.messages import Envelope, Message, fence_of
from baton.core.request import Request, Token, Usage
from baton.core.snapshot import Rates, WorkerInfo
from baton.nodes.fleet import Fleet, WorkerView
from baton.nodes.record import RequestRecord
from baton.policy.fallback import Fallback, next_fallback
from baton.policy.routing import Pair, recompute_worker, shortest_queue_pair
from baton.policy.schedule import choose_schedule
from baton.protocol.request import RequestInput, RequestState

_PERMANENT = ("exceed the K/V pool", "prompt_exceeds_pool")


class Router:
    """Owns every request from submission to its one end."""

    def __init__(self, config: RouterConfig, transfer: TransferConfig) -> None:
        self._config = config
        self._transfer = transfer
        self.fleet = Fleet(config.worker_timeout_ms * 1000)
        self.records: dict[str, RequestRecord] = {}
        self._waiting: deque[str] = deque()
        self.counters: Counter[str] = Counter()
        self._effects: list[Effect] = []
        self._now_us = 0
        self._next_tick_us = 0
        self._finished_at: deque[int] = deque(maxlen=64)

    # -- the border ----------------------------------------------------------------------------

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """Take one event at the host's time and return what the host must do, in order."""
        self._now_us = now_us
        match event:
            case events.Received(envelope=envelope):
                self._on_envelope(envelope)
            case events.Submitted(request=request):
                self._on_submitted(request)
            case events.Cancelled(request_id=request_id, reason=reason):
                self._on_cancelled(request_id, reason)
            case events.WorkerLost(worker_id=worker_id, epoch=epoch):
                self._on_worker_lost(worker_id, epoch)
            case events.Tick():
                self._on_tick()
            case _:
                raise AssertionError(f"the router does not take {type(event).__name__}")
        self._route_waiting()
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self) -> int | None:
        """When the host must call with a Tick at the latest; None while nothing is open."""
        return self._next_tick_us if self.records else None

    def missing(self, now_us: int) -> str:
        """Why no request can be served now, or ""."""
        return self.fleet.missing(now_us)

    @property
    def num_waiting(self) -> int:
        """Requests that have no route yet."""
        return len(self._waiting)

    def pending_tokens(self) -> int:
        """Prompt tokens that are queued here or routed and not prefilled yet."""
        queued = sum(self.records[key].num_tokens for key in self._waiting)
        return queued + sum(view.pending_tokens for view in self.fleet)

    def retry_after_s(self) -> float:
        """When a refused client may find room: from the real queue and measured rates."""
        prefill_s = self.pending_tokens() * self.fleet.prefill_us_per_token() / 1e6
        completion_s = 0.0
        if len(self._finished_at) >= 2:
            span_us = self._finished_at[-1] - self._finished_at[0]
            per_request_us = span_us / (len(self._finished_at) - 1)
            completion_s = (len(self._waiting) + 1) * per_request_us / 1e6
        return min(300.0, max(1.0, prefill_s, completion_s))

    # -- effects -------------------------------------------------------------------------------

    def _send(self, to: str, message: Message) -> None:
        self._effects.append(Send(to=to, message=message))

    def _deliver(self, record: RequestRecord, delivery: Delivery) -> None:
        self._effects.append(Deliver(request_id=record.request.request_id, delivery=delivery))

    def _trace(self, name: str, record: RequestRecord, **data: int | float | str) -> None:
        self._effects.append(
            Trace(
                name=name,
                request_id=record.request.request_id,
                generation=record.generation,
                data=data,
            )
        )

    # -- gateway -------------------------------------------------------------------------------

    def _on_submitted(self, request: Request) -> None:
        config = self._config
        assert request.request_id not in self.records
        record = RequestRecord(request, self._now_us, config.ttft_budget_ms * 1000)
        self.counters["requests"] += 1
        if not self.records:
            self._next_tick_us = self._now_us + self._transfer.retry_ms * 1000
        self.records[request.request_id] = record
        missing = self.fleet.missing(self._now_us)
        if missing:
            self._reject(record, "not_ready", f"cannot serve now: {missing}", 503)
        elif self._num_blocks(record) > self.fleet.largest_pool():
            capacity = self.fleet.largest_pool()
            text = (
                f"the prompt needs {self._num_blocks(record)} K/V blocks, a worker has {capacity}"
            )
            self._reject(record, "too_large", text, 400)
        elif len(self._waiting) >= config.max_waiting_requests:
            text = f"{len(self._waiting)} requests are waiting already"
            self._reject(record, "queue_full", text, 429)
        elif self.pending_tokens() + record.num_tokens > config.max_pending_tokens:
            text = f"{self.pending_tokens()} prompt tokens are waiting already"
            self._reject(record, "queue_full", text, 429)
        else:
            self._trace("arrived", record, num_tokens=record.num_tokens)
            self._waiting.append(request.request_id)

    def _reject(self, record: RequestRecord, code: str, text: str, status: int) -> None:
        record.machine.feed(RequestInput.REJECT)
        self.counters[f"rejected_{code}"] += 1
        retry_after_s = None if status == 400 else self.retry_after_s()
        self._end(
            record, Failed(code=code, message=text, status=status, retry_after_s=retry_after_s)
        )

    def _on_cancelled(self, request_id: str, reason: str) -> None:
        record = self.records.get(request_id)
        if record is None or record.state is RequestState.CANCELLING:
            return
        self.counters["cancelled"] += 1
        record.cancel_reason = reason
        record.machine.feed(RequestInput.CANCEL)
        self._trace("cancel", record, reason=reason)
        if record.state is RequestState.CANCELLED:
            self._waiting.remove(request_id)
            self._end_cancelled(record, None)
            return
        assert record.fence is not None
        record.attempt_deadline_us = self._now_us + 2 * self._transfer.lease_ms * 1000
        self._cancel_attempt(record.fence, reason)

    def _cancel_attempt(self, fence: Fence, reason: str) -> None:
        for worker_id in dict.fromkeys((fence.source_id, fence.destination_id)):
            self._send(worker_id, messages.Cancel(fence=fence, reason=reason))

    def _end_cancelled(self, record: RequestRecord, done: messages.Done | None) -> None:
        usage = done.usage if done else _usage(record)
        reason = "stop" if record.cancel_reason == "stop" else "cancelled"
        self._end(record, Finished(finish_reason=reason, usage=usage))

    # -- routing -------------------------------------------------------------------------------

    def _route_waiting(self) -> None:
        while self._waiting:
            record = self.records[self._waiting[0]]
            pair = self._choose(record)
            if pair is None:
                return
            self._waiting.popleft()
            self._start_attempt(record, pair)

    def _choose(self, record: RequestRecord) -> Pair | None:
        loads = self.fleet.routable(self._now_us)
        num_blocks = self._num_blocks(record)
        if record.recompute:
            return recompute_worker(loads, num_blocks)
        return shortest_queue_pair(loads, num_blocks, record.avoid_prefill)

    def _num_blocks(self, record: RequestRecord) -> int:
        model = self.fleet.model
        return model.layout.num_blocks(record.num_tokens + 1) if model else 1

    def _start_attempt(self, record: RequestRecord, pair: Pair) -> None:
        source, destination = self.fleet.get(pair.prefill), self.fleet.get(pair.decode)
        assert source is not None and destination is not None
        record.machine.feed(RequestInput.ROUTE)
        record.attempt += 1
        record.generation += 1
        record.grant = None
        record.fence = Fence(
            tenant_id=record.request.tenant_id,
            request_id=record.request.request_id,
            generation=record.generation,
            attempt=record.attempt,
            source_id=source.info.worker_id,
            source_epoch=source.info.epoch,
            destination_id=destination.info.worker_id,
            destination_epoch=destination.info.epoch,
        )
        record.mode = Mode.DISAGGREGATED
        if record.fence.colocated:
            record.mode = Mode.RECOMPUTED if record.recompute else Mode.COLOCATED
        key = record.request.request_id
        source.prefill_tokens[key] = record.num_tokens
        destination.decode_blocks[key] = self._num_blocks(record)
        queue_us = source.pending_tokens * self.fleet.prefill_us_per_token()
        timeout_us = self._config.attempt_timeout_ms * 1000 + int(2 * queue_us)
        record.attempt_deadline_us = self._now_us + timeout_us
        schedule = self._schedule(record, source, destination)
        self._trace("routed", record, mode=record.mode, schedule=schedule, **_route_names(record))
        self._send(
            destination.info.worker_id,
            messages.Reserve(
                fence=record.fence,
                request=record.request,
                output_token_ids=tuple(token.token_id for token in record.outputs),
                direction=self._transfer.direction,
                schedule=schedule,
            ),
        )

    def _schedule(
        self, record: RequestRecord, source: WorkerView, destination: WorkerView
    ) -> Schedule:
        if self._transfer.schedule != "auto":
            return Schedule(self._transfer.schedule)
        rates = source.snapshot.rates if source.snapshot else Rates()
        return choose_schedule(
            source.info.model.layout,
            record.num_tokens,
            record.num_tokens,
            self._transfer.chunk_nbytes,
            rates,
        ).schedule

    # -- workers -------------------------------------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, messages.Hello):
            self._on_hello(message.info)
            return
        view = self.fleet.get(envelope.sender_id, envelope.sender_epoch)
        if view is None:
            self.counters["stale_messages"] += 1
            return
        view.last_seen_us = self._now_us
        if isinstance(message, messages.Load):
            self._on_load(view, message)
            return
        if isinstance(message, messages.TokenRows):
            self._on_rows(message)
            return
        fence = fence_of(message)
        record = self.records.get(fence.request_id) if fence is not None else None
        if fence is None or record is None or not record.is_current(fence):
            self.counters["stale_messages"] += 1
            if fence is not None:
                self._answer_stale(view, fence, message)
            return
        self._on_current(record, fence, message)

    def _answer_stale(self, view: WorkerView, fence: Fence, message: Message) -> None:
        """A superseded attempt must not keep anything: acknowledge its end, stop its life."""
        if isinstance(message, messages.Done):
            self._send(view.info.worker_id, messages.DoneAck(fence=fence))
        elif isinstance(message, messages.Reserved | messages.Published):
            self._cancel_attempt(fence, "superseded")

    def _on_current(self, record: RequestRecord, fence: Fence, message: Message) -> None:
        match message:
            case messages.Reserved():
                self._on_reserved(record, message)
            case messages.Denied():
                self._on_denied(record, message)
            case messages.Published():
                self._on_published(record, message)
            case messages.Done():
                self._on_done(record, message)
            case messages.Aborted(reason=reason):
                self._on_attempt_failed(record, reason)
            case _:
                self.counters["unexpected_messages"] += 1

    def _on_hello(self, info: WorkerInfo) -> None:
        current = self.fleet.get(info.worker_id)
        if current is not None and current.info.epoch >= info.epoch:
            self.counters["stale_messages"] += 1
            return
        if current is not None:
            self._on_worker_lost(info.worker_id, current.info.epoch)
        reason = self.fleet.refusal(info)
        if reason:
            self.counters["refused_workers"] += 1
            self._send(info.worker_id, messages.Refused(reason=reason))
            return
        others = [view.info for view in self.fleet]
        self.fleet.join(info, self._now_us)
        for other in others:
            self._send(other.worker_id, messages.PeerUp(info=info))
            self._send(info.worker_id, messages.PeerUp(info=other))

    def _on_load(self, view: WorkerView, message: messages.Load) -> None:
        last = view.snapshot
        if last is None or message.snapshot.version > last.version:
            view.snapshot = message.snapshot
            view.full = False

    def _on_worker_lost(self, worker_id: str, epoch: int) -> None:
        if not self.fleet.leave(worker_id, epoch):
            return
        self.counters["workers_lost"] += 1
        for view in self.fleet:
            self._send(view.info.worker_id, messages.PeerDown(worker_id=worker_id, epoch=epoch))
        for record in list(self.records.values()):
            fence = record.fence
            if fence is None or record.state is RequestState.NEW:
                continue
            if (fence.destination_id, fence.destination_epoch) == (worker_id, epoch):
                self._on_attempt_failed(record, "decode_worker_lost")
            elif (fence.source_id, fence.source_epoch) == (worker_id, epoch):
                record.avoid_prefill |= {worker_id}
                if record.state is RequestState.RESERVING:
                    self._cancel_attempt(fence, "source_lost")

    # -- attempt -------------------------------------------------------------------------------

    def _on_reserved(self, record: RequestRecord, message: messages.Reserved) -> None:
        if record.state is RequestState.CANCELLING:
            return
        if record.state is not RequestState.RESERVING:
            self.counters["duplicate_messages"] += 1
            return
        record.machine.feed(RequestInput.GRANT)
        record.grant = message.grant
        record.fence = message.grant.fence
        self._send(
            record.fence.source_id,
            messages.Prefill(
                fence=record.fence,
                request=record.request,
                output_token_ids=tuple(token.token_id for token in record.outputs),
                grant=message.grant,
            ),
        )

    def _on_denied(self, record: RequestRecord, message: messages.Denied) -> None:
        fence = message.fence
        if any(text in message.reason for text in _PERMANENT):
            if record.state is RequestState.CANCELLING:
                record.machine.feed(RequestInput.END)
                self._end_cancelled(record, None)
                return
            record.machine.feed(RequestInput.FAIL)
            self._end(record, Failed(code="too_large", message=message.reason, status=400))
            return
        if record.state is RequestState.RESERVING and message.transient:
            view = self.fleet.get(fence.destination_id)
            if view is not None:
                view.full = True
            self.counters["denied_reservations"] += 1
            record.attempt -= 1  # nothing was tried: waiting for room is not an attempt
            self._requeue(record)
            return
        if record.state is RequestState.PREFILLING:
            self._cancel_attempt(fence, message.reason)
        self._on_attempt_failed(record, message.reason)

    def _requeue(self, record: RequestRecord) -> None:
        self._release(record)
        record.machine.feed(RequestInput.RETRY)
        record.fence = None
        self._waiting.appendleft(record.request.request_id)

    def _on_attempt_failed(self, record: RequestRecord, reason: str) -> None:
        """One attempt is over without an answer: fall back in the order of 0x10."""
        if record.state is RequestState.CANCELLING:
            record.machine.feed(RequestInput.END)
            self._end_cancelled(record, None)
            return
        model = self.fleet.model
        complete = finish_reason(record.request, record.outputs, model) if model else ""
        if complete:  # every token was delivered; only the word that it ended was lost
            record.machine.feed(RequestInput.FINISH)
            self._end(record, Finished(finish_reason=complete, usage=_usage(record)))
            return
        assert record.fence is not None
        if not record.fence.colocated:
            record.avoid_prefill |= {record.fence.source_id}
        sources = {
            view.info.worker_id for view in self.fleet if view.info.role != "decode"
        } - record.avoid_prefill
        fallback = next_fallback(
            attempt=record.attempt,
            max_attempts=self._config.max_attempts,
            budget_left=record.started or self._now_us < record.deadline_us,
            other_source=bool(sources),
        )
        self.counters[f"fallback_{fallback}"] += 1
        self._trace("attempt_failed", record, reason=reason, fallback=fallback)
        if fallback is Fallback.FAIL:
            self._fail(record, "attempts_exhausted", reason)
            return
        record.recompute = fallback is Fallback.RECOMPUTE
        self._requeue(record)

    def _fail(self, record: RequestRecord, code: str, reason: str) -> None:
        record.machine.feed(RequestInput.FAIL)
        self.counters["failed"] += 1
        text = f"the request failed after {record.attempt} attempts: {reason}"
        self._end(
            record,
            Failed(code=code, message=text, status=503, retry_after_s=self.retry_after_s()),
        )

    # -- tokens --------------------------------------------------------------------------------

    def _on_published(self, record: RequestRecord, message: messages.Published) -> None:
        if record.state is not RequestState.PREFILLING:
            self.counters["duplicate_messages"] += 1
            return
        record.machine.feed(RequestInput.PUBLISH)
        record.last_progress_us = self._now_us
        record.cached_tokens = message.cached_tokens
        fence = message.fence
        source = self.fleet.get(fence.source_id)
        if source is not None:
            source.prefill_tokens.pop(record.request.request_id, None)
        self.counters[f"mode_{record.mode}"] += 1
        self._trace("published", record)
        if not record.started:
            record.started = True
            self._deliver(
                record,
                Started(
                    mode=record.mode,
                    prefill_worker=fence.source_id,
                    decode_worker=fence.destination_id,
                    cached_tokens=message.cached_tokens,
                ),
            )

    def _on_rows(self, message: messages.TokenRows) -> None:
        fresh: dict[str, list[Token]] = {}
        for row in message.rows:
            record = self.records.get(row.request_id)
            if record is None or record.fence is None or row.generation != record.generation:
                self.counters["stale_tokens"] += 1
            elif record.state is not RequestState.DECODING:
                self.counters["early_tokens"] += 1
            elif row.token.index == len(record.outputs):
                record.outputs.append(row.token)
                record.last_progress_us = self._now_us
                fresh.setdefault(row.request_id, []).append(row.token)
            elif row.token.index < len(record.outputs):
                self.counters["duplicate_tokens"] += 1
            else:
                self._resync(record)
        for request_id, tokens in fresh.items():
            self.counters["delivered_tokens"] += len(tokens)
            self._deliver(self.records[request_id], Tokens(tokens=tuple(tokens)))

    def _resync(self, record: RequestRecord) -> None:
        assert record.fence is not None
        self.counters["resyncs"] += 1
        self._send(
            record.fence.destination_id,
            messages.Resync(fence=record.fence, next_index=len(record.outputs)),
        )

    def _on_done(self, record: RequestRecord, message: messages.Done) -> None:
        if record.state is RequestState.CANCELLING:
            record.machine.feed(RequestInput.END)
            self._send(message.fence.destination_id, messages.DoneAck(fence=message.fence))
            self._end_cancelled(record, message)
            return
        if record.state is not RequestState.DECODING:
            self.counters["early_tokens"] += 1
            return
        if len(record.outputs) < message.usage.completion_tokens:
            self._resync(record)
            return
        record.machine.feed(RequestInput.FINISH)
        self._send(message.fence.destination_id, messages.DoneAck(fence=message.fence))
        self._finished_at.append(self._now_us)
        self.counters["finished"] += 1
        self._end(
            record,
            Finished(
                finish_reason=message.finish_reason,
                usage=message.usage,
                kv_digest=message.kv_digest,
            ),
        )

    # -- end -----------------------------------------------------------------------------------

    def _release(self, record: RequestRecord) -> None:
        key = record.request.request_id
        for view in self.fleet:
            view.prefill_tokens.pop(key, None)
            if view.decode_blocks.pop(key, None) is not None:
                view.full = False

    def _end(self, record: RequestRecord, delivery: Delivery) -> None:
        assert record.machine.ended
        self._release(record)
        del self.records[record.request.request_id]
        self._trace("ended", record, state=record.state)
        self._deliver(record, delivery)

    # -- time ----------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        if self._now_us < self._next_tick_us:
            return
        retry_us = self._transfer.retry_ms * 1000
        self._next_tick_us = self._now_us + retry_us
        for record in list(self.records.values()):
            match record.state:
                case RequestState.NEW if self._now_us >= record.deadline_us:
                    self._waiting.remove(record.request.request_id)
                    waited = (self._now_us - record.submitted_us) // 1000
                    self._fail(record, "queue_timeout", f"no route within {waited} ms")
                case RequestState.RESERVING | RequestState.PREFILLING:
                    if self._now_us >= record.attempt_deadline_us:
                        assert record.fence is not None
                        self._cancel_attempt(record.fence, "attempt_timeout")
                        self._on_attempt_failed(record, "attempt_timeout")
                case RequestState.DECODING:
                    if self._now_us - record.last_progress_us >= 4 * retry_us:
                        record.last_progress_us = self._now_us
                        self._resync(record)
                case RequestState.CANCELLING if self._now_us >= record.attempt_deadline_us:
                    record.machine.feed(RequestInput.END)
                    self._end_cancelled(record, None)


def _route_names(record: RequestRecord) -> dict[str, str]:
    assert record.fence is not None
    return {"prefill": record.fence.source_id, "decode": record.fence.destination_id}


def _usage(record: RequestRecord) -> Usage:
    return Usage(
        prompt_tokens=record.request.num_prompt_tokens,
        completion_tokens=len(record.outputs),
        cached_tokens=record.cached_tokens,
    )
