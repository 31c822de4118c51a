"""The router's record of one request over all its attempts."""

import msgspec

from baton.core.ids import Fence, Mode
from baton.core.machine import Machine
from baton.core.messages import Prefill, Reserve
from baton.core.request import Request, Token
from baton.policy.routing.decision import Decision
from baton.protocol.request import REQUEST, RequestState


class RequestRecord:
    """One request: its state, its current attempt, and every token delivered so far."""

    def __init__(self, request: Request, now_us: int, budget_us: int) -> None:
        self.request = request
        self.machine = Machine(REQUEST)
        self.submitted_us = now_us
        self.deadline_us = now_us + budget_us
        self.attempt = 0
        self.generation = 0
        self.fence: Fence | None = None
        self.route_epoch = 0
        self.mode = Mode.DISAGGREGATED
        self.recompute = False
        self.avoid_prefill: frozenset[str] = frozenset()
        self.attempt_deadline_us = 0
        self.last_progress_us = now_us
        self.next_resync_us = 0
        self.unanswered: Reserve | Prefill | None = None
        """What was sent last and is repeated until somebody answers."""
        self.outputs: list[Token] = []
        self.started = False
        self.cancel_reason = ""
        self.cached_tokens = 0
        self.block_hashes: tuple[bytes, ...] | None = None
        """Names of its prompt's full blocks, once somebody has asked for them."""
        self.has_fetched = False
        """A copy of its prefix was tried: a second one is not."""
        self.fetched_to = ""
        """Where its prefix was inserted for it; its next route goes there, if it can."""
        self.decision: Decision | None = None
        """The route of its attempt, with what was predicted of it."""
        self.prefill_end_us = 0
        """When its prefill is expected to end."""
        self.published_us = 0
        self.num_prefilled_tokens = 0
        """Rows whose prefill was ordered by attempts that failed."""
        self.is_charged = False
        """Its prompt is on its tenant's counter."""

    @property
    def state(self) -> RequestState:
        """Current state."""
        return self.machine.state

    @property
    def num_tokens(self) -> int:
        """Rows that the next attempt has to hold before it draws a token."""
        return self.request.num_prompt_tokens + len(self.outputs)

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        """Tokens that were delivered, for a next attempt to replay."""
        return tuple(token.token_id for token in self.outputs)

    def is_current(self, fence: Fence) -> bool:
        """Fence before kind: does a message speak of the attempt that counts?"""
        mine = self.fence
        if mine is None or mine.reservation_id not in (0, fence.reservation_id):
            return False
        return msgspec.structs.replace(fence, reservation_id=mine.reservation_id) == mine
