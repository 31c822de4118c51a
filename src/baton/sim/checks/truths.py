"""The global truth: what every request must answer, whoever serves it."""

from collections.abc import Sequence

from baton.core.effects import Effect, Send
from baton.core.events import Event, Submitted
from baton.core.ids import Purpose
from baton.core.messages import Reserve
from baton.core.request import Request
from baton.sim.arithmetic import Truth
from baton.sim.observer import Observer
from baton.sim.world import World


class Truths(Observer):
    """Knows each request's rows and text, and how many rows each attempt has to hand over."""

    name = "truths"

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._truths: dict[str, Truth] = {}
        self._world: World | None = None
        self.num_tokens: dict[tuple[str, int], int] = {}
        """Rows of the published entry, by request and generation."""

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """Learn requests and attempts as they begin."""
        self._world = world
        if isinstance(event, Submitted):
            self._requests[event.request.request_id] = event.request
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Reserve):
                fence, outputs = effect.message.fence, effect.message.output_token_ids
                rows = effect.message.request.num_prompt_tokens + len(outputs)
                if effect.message.purpose is Purpose.INSERT:
                    self._requests[fence.request_id] = effect.message.request
                self.num_tokens[fence.request_id, fence.generation] = rows

    @property
    def request_ids(self) -> list[str]:
        """Everything that was submitted or copied so far."""
        return list(self._requests)

    def request(self, request_id: str) -> Request:
        """A submitted request."""
        return self._requests[request_id]

    def fits_everywhere(self, request_id: str) -> bool:
        """True when the smallest pool holds the request up to its last token."""
        assert self._world is not None
        request, plan = self._requests[request_id], self._world.plan
        longest = request.num_prompt_tokens + request.sampling.max_tokens
        return longest <= min(plan.capacities)

    def truth(self, request_id: str) -> Truth:
        """The truth about a submitted request."""
        truth = self._truths.get(request_id)
        if truth is None:
            assert self._world is not None
            truth = Truth(self._requests[request_id], self._world.model)
            self._truths[request_id] = truth
        return truth
