"""What the parts of the router share: fleet, records, clock reading, effects, counters."""

from collections import Counter, deque
from collections.abc import Sequence

from baton.cache.index import BlockIndex
from baton.cache.prefix import block_names
from baton.config import CacheConfig, RouterConfig, TransferConfig
from baton.core.delivery import Delivery, Failed, Finished
from baton.core.effects import Deliver, Effect, Send, Trace
from baton.core.ids import Fence
from baton.core.messages import Cancel, Done, Message
from baton.core.request import Request, Usage
from baton.nodes.fleet import Fleet
from baton.nodes.lifetimes import Lifetimes
from baton.nodes.record import RequestRecord
from baton.nodes.route_rights import RouteRights
from baton.policy.fairness import TenantCounters
from baton.protocol.request import RequestInput
from baton.protocol.signing import Signer


class RouterContext:
    """One per router. `now_us` is the host's clock at the event being handled."""

    def __init__(
        self,
        config: RouterConfig,
        transfer: TransferConfig,
        cache: CacheConfig,
        signer: Signer,
    ) -> None:
        self.config = config
        self.transfer = transfer
        self.cache = cache
        self.fleet = Fleet(config.worker_timeout_ms * 1000, config.batch_timeout_ms * 1000)
        self.rights = RouteRights(signer, transfer.capability_ttl_ms * 1000)
        self.holdings = BlockIndex()
        self.records: dict[str, RequestRecord] = {}
        self.waiting: deque[str] = deque()
        self.counters: Counter[str] = Counter()
        self.finished_at: deque[int] = deque(maxlen=64)
        self.lifetimes = Lifetimes()
        self.tenants = TenantCounters()
        self.now_us = 0
        self._effects: list[Effect] = []

    # -- effects -------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        """Ask the host to send a message to a worker."""
        self._effects.append(Send(to=to, message=message))

    def deliver(self, record: RequestRecord, delivery: Delivery) -> None:
        """Ask the host to hand something to the request's stream."""
        self._effects.append(Deliver(request_id=record.request.request_id, delivery=delivery))

    def trace(self, name: str, record: RequestRecord, **data: int | float | str) -> None:
        """Emit one trace event of a request."""
        self._effects.append(
            Trace(
                name=name,
                request_id=record.request.request_id,
                generation=record.generation,
                data=data,
            )
        )

    def trace_copy(self, name: str, copy_id: str, **data: int | float | str) -> None:
        """Emit one trace event of a copy between workers."""
        self._effects.append(Trace(name=name, request_id=copy_id, generation=1, data=data))

    def trace_fleet(self, name: str, **data: int | float | str) -> None:
        """Emit one trace event that is of no request."""
        self._effects.append(Trace(name=name, data=data))

    def take_effects(self) -> list[Effect]:
        """Everything asked for since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- load ----------------------------------------------------------------------------------

    def num_blocks(self, record: RequestRecord) -> int:
        """K/V blocks that the next attempt needs at least."""
        layout = self.fleet.decode_layout
        return layout.num_blocks(record.num_tokens + 1) if layout else 1

    def block_hashes(self, record: RequestRecord) -> tuple[bytes, ...]:
        """Names of the full blocks of its prompt, under its tenant and salt; computed once."""
        if record.block_hashes is None:
            record.block_hashes = self.names(record.request, record.request.prompt_token_ids)
        return record.block_hashes

    def names(
        self, request: Request, token_ids: Sequence[int], known: Sequence[bytes] = ()
    ) -> tuple[bytes, ...]:
        """Names of the full blocks of some tokens, where they are prefilled; see `block_names`."""
        model, layout = self.fleet.model, self.fleet.source_layout
        if model is None or layout is None:
            return ()
        return tuple(block_names(model.identity, layout, request, token_ids, known))

    def pending_tokens(self) -> int:
        """Prompt tokens that are queued here, or routed and not prefilled yet."""
        queued = sum(self.records[key].num_tokens for key in self.waiting)
        return queued + sum(view.pending_tokens for view in self.fleet)

    def retry_after_s(self) -> float:
        """When a refused client may find room: from the real queue and measured rates."""
        prefill_s = self.pending_tokens() * self.fleet.prefill_us_per_token() / 1e6
        completion_s = 0.0
        if len(self.finished_at) >= 2:
            span_us = self.finished_at[-1] - self.finished_at[0]
            per_request_us = span_us / (len(self.finished_at) - 1)
            completion_s = (len(self.waiting) + 1) * per_request_us / 1e6
        return min(300.0, max(1.0, prefill_s, completion_s))

    # -- ends ----------------------------------------------------------------------------------

    def cancel_attempt(self, fence: Fence, reason: str) -> None:
        """Tell both legs that an attempt is not wanted any more."""
        for worker_id in dict.fromkeys((fence.source_id, fence.destination_id)):
            self.send(worker_id, Cancel(fence=fence, reason=reason))

    def release(self, record: RequestRecord) -> None:
        """Drop a request from the accounts of every worker."""
        key = record.request.request_id
        for view in self.fleet:
            view.end_prefill(key)
            if view.decode_blocks.pop(key, None) is not None:
                view.full = False

    def end(self, record: RequestRecord, delivery: Finished | Failed) -> None:
        """Deliver the one end of a request whose machine is in a terminal state."""
        assert record.machine.ended
        if isinstance(delivery, Failed) and not record.outputs and record.num_prefilled_tokens:
            self.counters["wasted_prefill_tokens"] += record.num_prefilled_tokens
        self.release(record)
        del self.records[record.request.request_id]
        self.trace("ended", record, state=record.state)
        self.deliver(record, delivery)

    def end_cancelled(self, record: RequestRecord, done: Done | None) -> None:
        """End a cancelled request; with the worker's own account of it where it sent one."""
        usage = done.usage if done else usage_of(record)
        reason = "stop" if record.cancel_reason == "stop" else "cancelled"
        self.end(record, Finished(finish_reason=reason, usage=usage))

    def fail(self, record: RequestRecord, code: str, reason: str) -> None:
        """End a request that could not be answered."""
        record.machine.feed(RequestInput.FAIL)
        self.counters["failed"] += 1
        text = f"the request failed after {record.attempt} attempts: {reason}"
        self.end(
            record,
            Failed(code=code, message=text, status=503, retry_after_s=self.retry_after_s()),
        )


def usage_of(record: RequestRecord) -> Usage:
    """Token accounting from what was delivered."""
    return Usage(
        prompt_tokens=record.request.num_prompt_tokens,
        completion_tokens=len(record.outputs),
        cached_tokens=record.cached_tokens,
    )
