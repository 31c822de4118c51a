"""What happens in a world, told line by line: who to whom, what, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from baton.core import events, messages
from baton.core.delivery import Delivery, Failed, Finished, Started
from baton.core.effects import Deliver, Effect, MoveChunk, Send, Trace
from baton.core.events import Event
from baton.core.manifest import HandoffManifest
from baton.core.messages import Envelope, Message, fence_of
from baton.core.request import Token
from baton.core.work import Batch
from baton.nodes.context import ROUTER
from baton.sim.observer import Observer

if TYPE_CHECKING:
    from baton.sim.worker import SimWorker
    from baton.sim.world import World

UNTOLD = (
    messages.Load,
    messages.Renew,
    messages.CacheChanges,
    messages.CacheReplay,
    messages.CacheHoldings,
)
"""Said all the time and of no interest as long as they are said."""
UNTOLD_TRACES = ("chunk_arrived", "chunk_moved", "chunk_visible", "layer_ready")
"""Every chunk and layer: the story tells of the events themselves."""
_COUNTED = (
    "stale_",
    "duplicate_",
    "early_",
    "corrupt_",
    "unauthorized_",
    "capability_",
    "expired_",
)
_ACTORS, _LIFE_BITS = 24, (1 << 32) - 1


def number_of(reservation_id: int) -> int:
    """A reservation's number within its worker's life, as it is told."""
    return reservation_id & _LIFE_BITS


def message_text(message: Message) -> str:
    """A message by its kind, its transfer and its telling fields."""
    fence = fence_of(message)
    words = [type(message).__name__, *([fence.transfer_id] if fence is not None else [])]
    match message:
        case messages.Reserve():
            words += [message.direction, message.schedule]
            if message.output_token_ids:
                words.append(f"replaying {len(message.output_token_ids)} tokens")
        case messages.Reserved(grant=grant):
            blocks, number = len(grant.block_ids), number_of(grant.fence.reservation_id)
            words.append(
                f"reservation {number}: rows {_span(grant.token_start, grant.num_tokens)} in "
                f"{blocks} blocks, credit {grant.credit_nbytes} B"
            )
        case messages.Prefill(capability=signed) if signed is not None:
            words.append(f"with capability {signed.capability.nonce}")
        case messages.Present(capability=signed):
            words.append(f"capability {signed.capability.nonce}")
        case messages.Seal(manifest=manifest):
            words.append(_manifest(manifest))
        case messages.TokenRows(rows=rows):
            words += [f"{row.request_id}.{row.generation} {_tokens([row.token])}" for row in rows]
        case messages.Hello(info=info) | messages.PeerUp(info=info):
            words.append(f"{info.worker_id} epoch {info.epoch}")
        case messages.Done(usage=usage):
            words.append(f"{message.finish_reason}, {usage.completion_tokens} tokens")
        case messages.ChunksReady(chunk_ids=ids) | messages.CreditReturn(chunk_ids=ids):
            words.append("chunks " + ",".join(str(chunk_id) for chunk_id in ids))
        case _:
            words += _plain(message)
    return " ".join(words)


def _plain(message: Message) -> list[str]:
    names = ("worker_id", "epoch", "reason", "cached_tokens", "next_index", "route_epoch")
    values = [(name, getattr(message, name, None)) for name in names]
    return [f"{name}={value}" for name, value in values if value is not None]


def _manifest(manifest: HandoffManifest) -> str:
    drawn = [manifest.first_token] if manifest.first_token else []
    return (
        f"{len(manifest.placement.chunks)} chunks, first token {_tokens(drawn) or 'none'}, "
        f"{manifest.num_cached_tokens} rows reused"
    )


def _span(start: int, end: int) -> str:
    return f"{start}..{end - 1}" if end > start else "none"


def _tokens(tokens: Sequence[Token]) -> str:
    return " ".join(f"[{token.index}]={token.token_id}" for token in tokens)


def delivery_text(request_id: str, delivery: Delivery) -> str:
    """What a client gets."""
    match delivery:
        case Started():
            place = f"prefill {delivery.prefill_worker}, decode {delivery.decode_worker}"
            return f"{request_id} started {delivery.mode}: {place}, cached {delivery.cached_tokens}"
        case Finished(finish_reason=reason, usage=usage):
            count = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
            return f"{request_id} finished, {reason}: {count}, cached {usage.cached_tokens}"
        case Failed():
            return f"{request_id} failed, {delivery.status} {delivery.code}: {delivery.message}"
    return f"{request_id} tokens {_tokens(delivery.tokens)}"


class Teller(Observer):
    """Collects lines; times count from `start_us`. With `silent` it only keeps up with counters."""

    name = "teller"

    def __init__(self, *, silent: bool = False) -> None:
        self.lines: list[str] = []
        self.start_us = 0
        self.silent = silent
        self._now_us = 0
        self._counts: dict[str, Counter[str]] = {}
        self._transfers: dict[int, str] = {}
        self._reads: set[int] = set()

    def say(self, now_us: int, actors: str, text: str) -> None:
        """Add a line, unless the story has not begun."""
        if not self.silent:
            at_ms = (now_us - self.start_us) / 1000
            self.lines.append(f"{at_ms:>10.3f}  {actors:<{_ACTORS}} {text}".rstrip())

    def interfere(self, now_us: int, receiver: str, envelope: Envelope, how: str) -> None:
        """Tell what was done to a message on its way."""
        if not isinstance(envelope.message, UNTOLD):
            actors = f"{envelope.sender_id} -x {receiver}"
            self.say(now_us, actors, f"{message_text(envelope.message)}: {how}")

    # -- processes -----------------------------------------------------------------------------

    def started(self, worker: SimWorker) -> None:
        """A life begins."""
        now_us = worker.world.timeline.now_us
        self._counts[worker.worker_id] = Counter()
        self.say(now_us, worker.worker_id, f"starts, epoch {worker.epoch}")

    def crashed(self, worker: SimWorker) -> None:
        """A life is over."""
        self.say(worker.world.timeline.now_us, worker.worker_id, "dies")

    # -- events --------------------------------------------------------------------------------

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """An event at the router, and what it traced and delivered."""
        now_us = world.timeline.now_us
        noted = self._noted(ROUTER, world.router.counters)
        self._event(now_us, ROUTER, event, noted)
        for effect in effects:
            if isinstance(effect, Trace):
                self._trace(now_us, ROUTER, effect)
            elif isinstance(effect, Deliver):
                text = delivery_text(effect.request_id, effect.delivery)
                self.say(now_us, f"{ROUTER} -> client", text)

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """An event at a worker, and what it traced."""
        now_us, name = worker.world.timeline.now_us, worker.worker_id
        noted = self._noted(name, worker.node.counters)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, messages.Reserved):
                fence = effect.message.grant.fence
                self._transfers[fence.reservation_id] = fence.transfer_id
            elif isinstance(effect, MoveChunk) and not effect.write:
                self._reads.add(effect.reservation_id)
        self._event(now_us, name, event, noted)
        for effect in effects:
            if isinstance(effect, Trace) and effect.name not in UNTOLD_TRACES:
                self._trace(now_us, name, effect)

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """Rows of prompts are told; one row of a decode step shows by its token."""
        for item in batch.items:
            if item.end - item.start > 1:
                text = f"{item.request_id}.{item.generation} rows {_span(item.start, item.end)}"
                self.say(worker.world.timeline.now_us, worker.worker_id, f"computes {text}")

    def _noted(self, name: str, counters: Counter[str]) -> str:
        """Counters that rose and say that something was off."""
        before = self._counts.setdefault(name, Counter())
        risen = [k for k in sorted(counters) if counters[k] > before[k] and k.startswith(_COUNTED)]
        self._counts[name] = Counter(counters)
        return f"  ({', '.join(risen)})" if risen else ""

    def _event(self, now_us: int, name: str, event: Event, noted: str) -> None:
        match event:
            case events.Received(envelope=envelope):
                if not isinstance(envelope.message, UNTOLD):
                    text = message_text(envelope.message)
                    self.say(now_us, f"{envelope.sender_id} -> {name}", text + noted)
            case events.ChunkArrived():
                text = f"{self._chunk(event)}: {event.nbytes} B received"
                self.say(now_us, f"{event.source_id} => {name}", text + noted)
            case events.ChunkMoved(error=error) if error:
                self.say(now_us, name, f"{self._chunk(event)} fails: {error}{noted}")
            case events.ChunkMoved() if event.reservation_id in self._reads:
                self.say(now_us, name, f"{self._chunk(event)}: {event.nbytes} B read{noted}")
            case events.BatchDone(result=result) if result.error:
                self.say(now_us, name, f"batch fails: {result.error}{noted}")
            case events.Submitted(request=request):
                text = f"{request.request_id}: {request.num_prompt_tokens} tokens"
                self.say(now_us, f"client -> {ROUTER}", text)
            case events.Cancelled(request_id=request_id, reason=reason):
                self.say(now_us, f"client -> {ROUTER}", f"{request_id}: {reason}")
            case _ if noted:
                self.say(now_us, name, noted.strip())

    def _chunk(self, event: events.ChunkArrived | events.ChunkMoved) -> str:
        transfer_id = self._transfers.get(event.reservation_id, "an unknown transfer")
        return f"chunk {event.chunk_id} of {transfer_id}"

    def _trace(self, now_us: int, name: str, trace: Trace) -> None:
        of = f" {trace.request_id}.{trace.generation}" if trace.request_id else ""
        data = "".join(f" {key}={value}" for key, value in trace.data.items())
        self.say(now_us, name, f"  {trace.name}{of}{data}")
