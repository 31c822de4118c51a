"""What clients see: true tokens in order, once each, then one end; and a true account of it."""

from collections.abc import Sequence

from baton.core.delivery import Failed, Finished, Started, Tokens
from baton.core.effects import Deliver, Effect
from baton.core.events import Cancelled, Event, Received
from baton.core.messages import Done, Published
from baton.core.request import Token
from baton.core.work import Batch
from baton.protocol.request import RequestState
from baton.sim.checks.truths import Truths
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import World


class StreamsAreExact(Observer):
    """Every delivered token is the true one, with all that is said of it; a success is complete;
    nothing follows an end; the rows that are reported as reused are those that were."""

    name = "streams-are-exact"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._counts: dict[str, int] = {}
        self._ended: set[str] = set()
        self._cancelled: dict[str, str] = {}
        self._reused: dict[tuple[str, int], int] = {}
        self._decoding: dict[str, int] = {}
        """The last generation whose publication the router took, by request."""

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """The first rows of an attempt that anybody computes come after those that were reused."""
        for item in batch.items:
            self._reused.setdefault((item.request_id, item.generation), item.start)

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """Judge what goes to the clients."""
        if isinstance(event, Cancelled):
            self._cancelled.setdefault(event.request_id, event.reason)
        message = event.envelope.message if isinstance(event, Received) else None
        if isinstance(message, Published):
            self._hear(world, message)
        for effect in effects:
            if isinstance(effect, Deliver):
                self._judge(effect, message if isinstance(message, Done) else None)

    def _hear(self, world: World, message: Published) -> None:
        fence = message.fence
        record = world.router.records.get(fence.request_id)
        if record is None or record.state is not RequestState.DECODING:
            return
        if record.is_current(fence):
            self._decoding[fence.request_id] = fence.generation

    def _judge(self, effect: Deliver, done: Done | None) -> None:
        request_id = effect.request_id
        if request_id in self._ended:
            self.fail(f"{request_id} gets {effect.delivery} after its end")
        match effect.delivery:
            case Started(cached_tokens=cached):
                if request_id in self._counts:
                    self.fail(f"{request_id} starts twice")
                self._check_reuse(request_id, self._decoding[request_id], cached)
                self._counts[request_id] = 0
            case Tokens(tokens=tokens):
                for token in tokens:
                    self._token(request_id, token)
            case Finished(usage=usage) as finished:
                generation = done.fence.generation if done else self._decoding.get(request_id, 0)
                self._check_reuse(request_id, generation, usage.cached_tokens)
                self._finished(request_id, finished, with_digest=done is not None)
            case Failed() as failed:
                self._failed(request_id, failed)

    def _check_reuse(self, request_id: str, generation: int, cached: int) -> None:
        reused = self._reused.get((request_id, generation), 0)
        if cached != reused:
            self.fail(f"{request_id}.{generation} reports {cached} reused rows of {reused}")

    def _failed(self, request_id: str, failed: Failed) -> None:
        self._ended.add(request_id)
        if failed.code == "too_large" and self._truths.fits_everywhere(request_id):
            self.fail(f"{request_id} fits every pool and is refused: {failed.message}")

    def _token(self, request_id: str, token: Token) -> None:
        index, token_id = token.index, token.token_id
        count = self._counts.get(request_id)
        if count is None:
            self.fail(f"{request_id} gets a token before it starts")
        if index != count:
            self.fail(f"{request_id} gets token {index} after {count} tokens")
        outputs = self._truths.truth(request_id).tokens
        if index >= len(outputs) or outputs[index].token_id != token_id:
            self.fail(f"{request_id} gets the wrong token {token_id} at {index}")
        if outputs[index] != token:
            self.fail(f"{request_id} gets {token}, right is {outputs[index]}")
        self._counts[request_id] = index + 1

    def _finished(self, request_id: str, finished: Finished, *, with_digest: bool) -> None:
        self._ended.add(request_id)
        truth, count = self._truths.truth(request_id), self._counts.get(request_id, 0)
        if finished.finish_reason == "cancelled":
            if request_id not in self._cancelled:
                self.fail(f"{request_id} ends as cancelled and nobody cancelled it")
            return
        if self._cancelled.get(request_id) == "stop" and finished.finish_reason == "stop":
            return
        if (count, finished.finish_reason) != (len(truth.outputs), truth.finish_reason):
            self.fail(
                f"{request_id} ends with {count} tokens as {finished.finish_reason}; right are "
                f"{len(truth.outputs)} as {truth.finish_reason}"
            )
        if finished.usage.completion_tokens != count and request_id not in self._cancelled:
            self.fail(
                f"{request_id} is billed {finished.usage.completion_tokens} of {count} tokens"
            )
        digest = truth.kv_digest if with_digest and truth.request.verify else ""
        if finished.kv_digest != digest:
            self.fail(f"{request_id} ends with the digest {finished.kv_digest!r} of {digest!r}")
