"""What clients see: the true tokens in order, once each, and exactly one end after them."""

from collections.abc import Sequence

from baton.core.delivery import Failed, Finished, Started, Tokens
from baton.core.effects import Deliver, Effect
from baton.core.events import Cancelled, Event
from baton.sim.checks.truths import Truths
from baton.sim.observer import Observer
from baton.sim.world import World


class StreamsAreExact(Observer):
    """Every delivered token is the true one; a success is complete; nothing follows an end."""

    name = "streams-are-exact"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._counts: dict[str, int] = {}
        self._ended: set[str] = set()
        self._cancelled: dict[str, str] = {}

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """Judge what goes to the clients."""
        if isinstance(event, Cancelled):
            self._cancelled.setdefault(event.request_id, event.reason)
        for effect in effects:
            if isinstance(effect, Deliver):
                self._judge(effect)

    def _judge(self, effect: Deliver) -> None:
        request_id = effect.request_id
        if request_id in self._ended:
            self.fail(f"{request_id} gets {effect.delivery} after its end")
        match effect.delivery:
            case Started():
                if request_id in self._counts:
                    self.fail(f"{request_id} starts twice")
                self._counts[request_id] = 0
            case Tokens(tokens=tokens):
                for token in tokens:
                    self._token(request_id, token.index, token.token_id)
            case Finished() as finished:
                self._finished(request_id, finished)
            case Failed():
                self._ended.add(request_id)

    def _token(self, request_id: str, index: int, token_id: int) -> None:
        count = self._counts.get(request_id)
        if count is None:
            self.fail(f"{request_id} gets a token before it starts")
        if index != count:
            self.fail(f"{request_id} gets token {index} after {count} tokens")
        outputs = self._truths.truth(request_id).outputs
        if index >= len(outputs) or outputs[index] != token_id:
            self.fail(f"{request_id} gets the wrong token {token_id} at {index}")
        self._counts[request_id] = index + 1

    def _finished(self, request_id: str, finished: Finished) -> None:
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
