"""Attempts: choose a route, reserve, start the prefill, and fall back when one fails."""

from collections.abc import Callable

from baton.core.delivery import Failed, Finished
from baton.core.finish import finish_reason
from baton.core.ids import Fence, Mode, Role, Schedule
from baton.core.manifest import Grant
from baton.core.messages import Denied, PeerUp, Prefill, Reserve, Reserved
from baton.nodes.fleet import WorkerView
from baton.nodes.grants import grant_answer_defect
from baton.nodes.record import RequestRecord
from baton.nodes.router_context import RouterContext, usage_of
from baton.nodes.routes import Routes
from baton.policy.fallback import Fallback, next_fallback
from baton.policy.routing.decision import Decision, Fetch, Rejection, alternatives_text
from baton.policy.schedule import choose_schedule
from baton.protocol.request import RequestInput, RequestState

Fetches = Callable[[RequestRecord, str, str, int], bool]
"""Copies the first blocks of a prompt from an owner to a worker; False if it cannot start."""
_COMPUTING = (RequestState.PREFILLING, RequestState.DECODING)
_PERMANENT = ("exceed the K/V pool", "prompt_exceeds_pool")


class Attempts:
    """Owns a request between two states: waiting for a route, and published or failed."""

    def __init__(self, context: RouterContext, fetch: Fetches) -> None:
        self._context = context
        self._routes = Routes(context)
        self._fetch = fetch

    # -- route ---------------------------------------------------------------------------------

    def route_waiting(self) -> None:
        """Start attempts while whose turn it is has a route, or is refused."""
        context = self._context
        while context.waiting:
            record = self._routes.next_waiting()
            outcome = self._routes.choose(record)
            if outcome is None:
                return
            if isinstance(outcome, Rejection):
                self._reject(record, outcome)
            elif outcome.fetch is None:
                context.waiting.remove(record.request.request_id)
                self._start(record, outcome)
            elif self._begin_fetch(record, outcome, outcome.fetch):
                context.waiting.remove(record.request.request_id)
            # Where no copy could start it is still its turn, and it is routed without one.

    def _begin_fetch(self, record: RequestRecord, decision: Decision, fetch: Fetch) -> bool:
        """The one place where a route becomes a copy: its request waits for that one's end."""
        record.has_fetched = True
        record.decision = decision
        return self._fetch(record, fetch.owner, decision.pair.prefill, fetch.num_blocks)

    def _reject(self, record: RequestRecord, rejection: Rejection) -> None:
        """Refused before any compute, or before any more of it."""
        context = self._context
        context.waiting.remove(record.request.request_id)
        record.machine.feed(RequestInput.REJECT)
        context.counters[f"rejected_{rejection.code}"] += 1
        context.trace(
            "rejected",
            record,
            code=rejection.code,
            reason=rejection.reason,
            predicted_ttft_us=round(rejection.ttft_us),
            predicted_tpot_us=round(rejection.tpot_us),
        )
        retry_after_s = context.retry_after_s()
        if rejection.wait_us:
            retry_after_s = min(300.0, max(1.0, rejection.wait_us / 1e6))
        failed = Failed(
            code=rejection.code,
            message=rejection.reason,
            status=429,
            retry_after_s=retry_after_s,
        )
        context.end(record, failed)

    def _start(self, record: RequestRecord, decision: Decision) -> None:
        context, request, pair = self._context, record.request, decision.pair
        source, destination = context.fleet.get(pair.prefill), context.fleet.get(pair.decode)
        assert source is not None and destination is not None
        self._routes.charge(record)
        record.machine.feed(RequestInput.ROUTE)
        record.attempt += 1
        record.generation += 1
        record.fetched_to = ""
        fence = record.fence = _fence(record, source, destination)
        record.route_epoch = context.rights.route_epoch
        record.decision = decision
        record.mode = Mode.DISAGGREGATED
        if fence.colocated:
            record.mode = Mode.RECOMPUTED if record.recompute else Mode.COLOCATED
        destination.decode_blocks[request.request_id] = context.num_blocks(record)
        self._set_deadlines(record, source, decision)
        schedule = self._schedule(record, source, decision)
        self._trace_routed(record, decision, schedule)
        record.unanswered = Reserve(
            fence=fence,
            request=request,
            output_token_ids=record.output_token_ids,
            direction=decision.direction or context.transfer.direction,
            schedule=schedule,
            route_epoch=record.route_epoch,
        )
        self.repeat(record)

    def _set_deadlines(self, record: RequestRecord, source: WorkerView, route: Decision) -> None:
        """Put what it still has to compute on the source's account, and wait as long as that."""
        context, request_id = self._context, record.request.request_id
        cached = route.prefill_reuse_tokens
        rows = record.num_tokens - cached
        source.prefill_tokens[request_id] = rows
        source.prefill_pairs[request_id] = rows * cached + rows * (rows + 1) // 2
        load = source.load()
        queue_us = load.pending_us or (load.pending_tokens * context.fleet.prefill_us_per_token())
        record.prefill_end_us = context.now_us + int(queue_us)
        timeout_us = context.config.attempt_timeout_ms * 1000 + int(2 * queue_us)
        record.attempt_deadline_us = context.now_us + timeout_us

    def _trace_routed(self, record: RequestRecord, route: Decision, schedule: Schedule) -> None:
        """The route and what was expected of it; expectations that are 0 or empty are left out."""
        expected: dict[str, int | str] = {
            "predicted_ttft_us": round(route.ttft_us),
            "predicted_tpot_us": round(route.tpot_us),
            "prefill_reuse": route.prefill_reuse_tokens,
            "decode_reuse": route.decode_reuse_tokens,
            "alternatives": alternatives_text(route),
        }
        self._context.trace(
            "routed",
            record,
            mode=record.mode,
            schedule=schedule,
            prefill=route.pair.prefill,
            decode=route.pair.decode,
            policy=self._context.config.policy,
            reason=route.reason,
            **{name: value for name, value in expected.items() if value},
        )

    def repeat(self, record: RequestRecord) -> None:
        """Send what nobody has answered yet, the first time or again; both are idempotent."""
        match record.unanswered:
            case Reserve(fence=fence):
                self._context.send(fence.destination_id, record.unanswered)
            case Prefill(fence=fence):
                self._context.send(fence.source_id, record.unanswered)

    def _schedule(self, record: RequestRecord, source: WorkerView, route: Decision) -> Schedule:
        """By the compute set and the transfer set that the route expects."""
        transfer = self._context.transfer
        if transfer.schedule != "auto":
            return Schedule(transfer.schedule)
        return choose_schedule(
            source.info.model.layout,
            record.num_tokens - route.prefill_reuse_tokens,
            record.num_tokens - route.decode_reuse_tokens,
            transfer.chunk_nbytes,
            source.rates,
            transfer.credit_nbytes,
        ).schedule

    # -- answers -------------------------------------------------------------------------------

    def on_reserved(self, record: RequestRecord, message: Reserved) -> None:
        """The destination holds storage: the source may start."""
        if record.state is RequestState.CANCELLING:
            return
        if record.state is not RequestState.RESERVING:
            self._context.counters["duplicate_messages"] += 1
            return
        context, grant = self._context, message.grant
        defect = self._defect(record, grant)
        if defect:
            context.counters["bad_grants"] += 1
            context.cancel_attempt(grant.fence, f"bad_grant: {defect}")
            self.on_failed(record, f"bad_grant: {defect}")
            return
        record.machine.feed(RequestInput.GRANT)
        record.fence = grant.fence
        source = context.fleet.get(grant.fence.source_id, grant.fence.source_epoch)
        if source is None or context.rights.is_revoked(grant.fence, grant.route_epoch):
            reason = "source_lost" if source is None else "routes_revoked"
            context.cancel_attempt(grant.fence, reason)
            self.on_failed(record, reason)
            return
        record.unanswered = Prefill(
            fence=grant.fence,
            request=record.request,
            output_token_ids=record.output_token_ids,
            grant=grant,
            capability=context.rights.mint(grant, source.info, context.now_us),
        )
        self.repeat(record)

    def _defect(self, record: RequestRecord, grant: Grant) -> str:
        """A grant must answer what was asked, within the pool of who granted it."""
        asked = record.unanswered
        assert isinstance(asked, Reserve)
        view = self._context.fleet.get(grant.fence.destination_id)
        assert view is not None
        return grant_answer_defect(grant, asked, record.num_tokens, view.info)

    def on_accepted(self, record: RequestRecord) -> None:
        """The source has the prefill in its queue."""
        if isinstance(record.unanswered, Prefill):
            record.unanswered = None

    def on_denied(self, record: RequestRecord, message: Denied) -> None:
        """Nothing is held by whoever denied; wait for room, fall back, or refuse for good."""
        context, permanent = self._context, any(t in message.reason for t in _PERMANENT)
        if record.state is RequestState.DECODING:  # the answer to a repeat that came too late
            context.counters["duplicate_messages"] += 1
            return
        if permanent and record.state is RequestState.PREFILLING:
            context.cancel_attempt(message.fence, message.reason)
        if permanent and record.state is not RequestState.CANCELLING:
            record.machine.feed(RequestInput.FAIL)
            context.end(record, Failed(code="too_large", message=message.reason, status=400))
            return
        if message.reason in ("source_unknown", "destination_unknown"):
            self._introduce(message.fence)
        if record.state is RequestState.RESERVING and message.transient:
            context.counters["denied_reservations"] += 1
            record.attempt -= 1  # nothing was tried: waiting for room is not an attempt
            self._requeue(record)  # under the same deadline, however often it is denied
            view = context.fleet.get(message.fence.destination_id)
            if view is not None:  # after the requeue, which takes this request off its account
                view.full = True
            return
        if record.state is RequestState.PREFILLING:
            context.cancel_attempt(message.fence, message.reason)
        self.on_failed(record, message.reason)

    def _introduce(self, fence: Fence) -> None:
        """One of the pair has not heard of the other yet, or the word was lost."""
        fleet = self._context.fleet
        source = fleet.get(fence.source_id, fence.source_epoch)
        destination = fleet.get(fence.destination_id, fence.destination_epoch)
        if source is not None and destination is not None:
            self._context.send(fence.source_id, PeerUp(info=destination.info))
            self._context.send(fence.destination_id, PeerUp(info=source.info))

    def _requeue(self, record: RequestRecord) -> None:
        self._context.release(record)
        record.machine.feed(RequestInput.RETRY)
        record.fence = None
        record.unanswered = None
        self._context.waiting.appendleft(record.request.request_id)

    def on_failed(self, record: RequestRecord, reason: str) -> None:
        """One attempt is over without an answer: fall back in the order of 0x10."""
        context = self._context
        if record.state is RequestState.CANCELLING:
            record.machine.feed(RequestInput.END)
            context.end_cancelled(record, None)
            return
        if self._finish_if_complete(record):
            return
        fence = record.fence
        assert fence is not None
        if record.state in _COMPUTING and record.decision is not None:
            rows = record.num_tokens - record.decision.prefill_reuse_tokens
            record.num_prefilled_tokens += rows
        if context.rights.is_revoked(fence, record.route_epoch):
            record.attempt -= 1  # the route was taken back, whatever its workers made of that
        elif not fence.colocated and reason != "capability_expired":
            record.avoid_prefill |= {fence.source_id}
        fallback = next_fallback(
            attempt=record.attempt,
            max_attempts=context.config.max_attempts,
            budget_left=record.started or context.now_us < record.deadline_us,
            other_source=bool(self._sources() - record.avoid_prefill),
        )
        context.counters[f"fallback_{fallback}"] += 1
        context.trace("attempt_failed", record, reason=reason, fallback=fallback)
        if fallback is Fallback.FAIL:
            context.fail(record, "attempts_exhausted", reason)
            return
        record.recompute = fallback is Fallback.RECOMPUTE
        if record.started:  # its first token is out: the wait for the next route counts anew
            record.deadline_us = context.now_us + context.config.ttft_budget_ms * 1000
        self._requeue(record)

    def _finish_if_complete(self, record: RequestRecord) -> bool:
        """Every token may have been delivered and only the word that it ended was lost."""
        model = self._context.fleet.model
        reason = finish_reason(record.request, record.outputs, model) if model else ""
        if not reason or record.state is not RequestState.DECODING:
            return False
        record.machine.feed(RequestInput.FINISH)
        self._context.end(record, Finished(finish_reason=reason, usage=usage_of(record)))
        return True

    def _sources(self) -> set[str]:
        views = self._context.fleet
        return {view.info.worker_id for view in views if view.info.role is not Role.DECODE}


def _fence(record: RequestRecord, source: WorkerView, destination: WorkerView) -> Fence:
    return Fence(
        tenant_id=record.request.tenant_id,
        request_id=record.request.request_id,
        generation=record.generation,
        attempt=record.attempt,
        source_id=source.info.worker_id,
        source_epoch=source.info.epoch,
        destination_id=destination.info.worker_id,
        destination_epoch=destination.info.epoch,
    )
