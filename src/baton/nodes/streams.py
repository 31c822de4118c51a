"""Streams: tokens arrive in index order, once each, and the end comes after the last of them."""

from collections.abc import Callable

from baton.core.delivery import Finished, Started, Tokens
from baton.core.ids import Fence
from baton.core.messages import Done, DoneAck, Published, Resync, TokenRows
from baton.core.request import Token
from baton.core.snapshot import WorkerInfo
from baton.core.topology import topology_of
from baton.nodes.record import RequestRecord
from baton.nodes.router_context import RouterContext
from baton.protocol.request import RequestInput, RequestState


class Streams:
    """Owns a request from publication to its end."""

    def __init__(
        self, context: RouterContext, on_finished: Callable[[RequestRecord], None]
    ) -> None:
        self._context = context
        self._on_finished = on_finished

    def on_published(self, record: RequestRecord, message: Published) -> None:
        """Decode has started; the client learns the mode once."""
        context, fence = self._context, message.fence
        if record.state is not RequestState.PREFILLING:
            return  # said again beside tokens that were sent again
        record.machine.feed(RequestInput.PUBLISH)
        record.last_progress_us = record.published_us = context.now_us
        record.cached_tokens = message.cached_tokens
        source = context.fleet.get(fence.source_id)
        if source is not None:
            source.end_prefill(record.request.request_id)
        context.counters[f"mode_{record.mode}"] += 1
        self._count_route(record, fence)
        context.trace("published", record)
        if not record.started:
            record.started = True
            context.deliver(
                record,
                Started(
                    mode=record.mode,
                    prefill_worker=fence.source_id,
                    decode_worker=fence.destination_id,
                    cached_tokens=message.cached_tokens,
                ),
            )

    def _count_route(self, record: RequestRecord, fence: Fence) -> None:
        """By what lies between its workers; who said so is there, its source may be gone."""
        source = self._context.fleet.get(fence.source_id, fence.source_epoch)
        destination = self._context.fleet.get(fence.destination_id, fence.destination_epoch)
        if destination is not None:
            topology = topology_of(source.info if source else None, destination.info)
            self._context.counters[f"route_{topology}_{record.mode}"] += 1

    def on_rows(self, message: TokenRows, sender: WorkerInfo) -> None:
        """Deliver the tokens that are next; name the stale and the repeated, ask for the lost."""
        context = self._context
        fresh: dict[str, list[Token]] = {}
        early: set[str] = set()
        for row in message.rows:
            record = context.records.get(row.request_id)
            if record is None or record.fence is None or row.generation != record.generation:
                context.counters["stale_tokens"] += 1
            elif not self._is_credible(record.fence, row.token, sender):
                context.counters["foreign_tokens"] += 1
            elif record.state is not RequestState.DECODING:
                early.add(row.request_id)
            elif row.token.index == len(record.outputs):
                record.outputs.append(row.token)
                record.last_progress_us = context.now_us
                fresh.setdefault(row.request_id, []).append(row.token)
            elif row.token.index < len(record.outputs):
                context.counters["duplicate_tokens"] += 1
            else:
                self.resync(record)
        for request_id in sorted(early):
            self._on_early(context.records[request_id])
        for request_id, tokens in fresh.items():
            context.counters["delivered_tokens"] += len(tokens)
            asked = context.records[request_id]
            if not tokens[0].index:
                context.trace("first_token", asked)
            context.tenants.charge(asked.request.tenant_id, output_tokens=len(tokens))
            context.deliver(asked, Tokens(tokens=tuple(tokens)))

    def _is_credible(self, fence: Fence, token: Token, sender: WorkerInfo) -> bool:
        """Tokens come from the decode worker of the attempt, and from the vocabulary."""
        owner = (fence.destination_id, fence.destination_epoch)
        return (
            owner == (sender.worker_id, sender.epoch)
            and 0 <= token.token_id < sender.model.vocab_size
        )

    def _on_early(self, record: RequestRecord) -> None:
        """Tokens of an attempt whose publication was not heard of: the word was lost."""
        self._context.counters["early_tokens"] += 1
        if record.state is RequestState.PREFILLING:
            self.resync(record)

    def resync(self, record: RequestRecord) -> None:
        """Ask for everything from the next index on."""
        assert record.fence is not None
        self._context.counters["resyncs"] += 1
        self._context.send(
            record.fence.destination_id,
            Resync(fence=record.fence, next_index=len(record.outputs)),
        )

    def on_done(self, record: RequestRecord, message: Done) -> None:
        """The worker's end counts once every token before it was delivered."""
        context, fence = self._context, message.fence
        if record.state is RequestState.CANCELLING:
            record.machine.feed(RequestInput.END)
            context.send(fence.destination_id, DoneAck(fence=fence))
            context.end_cancelled(record, message)
            return
        if record.state is not RequestState.DECODING:
            self._on_early(record)
            return
        if len(record.outputs) < message.usage.completion_tokens:
            self.resync(record)
            return
        record.machine.feed(RequestInput.FINISH)
        context.send(fence.destination_id, DoneAck(fence=fence))
        context.finished_at.append(context.now_us)
        context.lifetimes.observe(context.now_us - record.published_us, len(record.outputs))
        context.counters["finished"] += 1
        self._on_finished(record)
        context.end(
            record,
            Finished(
                finish_reason=message.finish_reason,
                usage=message.usage,
                kv_digest=message.kv_digest,
            ),
        )
