"""One copy of history between two workers, as the router knows it."""

from enum import StrEnum

from baton.core.ids import Fence
from baton.core.machine import Machine
from baton.core.messages import Prefill, Reserve
from baton.core.request import Request
from baton.protocol.copy import HISTORY_COPY, HistoryCopyState


class Motive(StrEnum):
    """Why history is copied."""

    FETCH = "fetch"
    """A prompt is about to be computed where its prefix is not (0x09H, step 1)."""
    RETURN = "return"
    """A decode worker's rows go back to where the next turn is computed (0x09D)."""
    REPLICATE = "replicate"
    """A hot prefix gets another owner (0x09I)."""


class HistoryCopy:
    """A transaction of its own: fence, deadline, and whoever waits for its end."""

    def __init__(
        self,
        *,
        request: Request,
        fence: Fence,
        motive: Motive,
        route_epoch: int,
        started_us: int,
        deadline_us: int,
        waiter: str,
    ) -> None:
        self.machine = Machine(HISTORY_COPY)
        self.request = request
        self.fence = fence
        self.motive = motive
        self.route_epoch = route_epoch
        self.started_us = started_us
        self.deadline_us = deadline_us
        self.waiter = waiter
        """The request that waits for it, or ""."""
        self.asked: Reserve | None = None
        self.unanswered: Reserve | Prefill | None = None

    @property
    def copy_id(self) -> str:
        """Its id, in the place of a request's."""
        return self.fence.request_id

    @property
    def state(self) -> HistoryCopyState:
        """Current state."""
        return self.machine.state

    @property
    def num_tokens(self) -> int:
        """Rows of history, whole blocks."""
        return self.request.num_prompt_tokens

    def touches(self, worker_id: str, epoch: int) -> bool:
        """That life of that worker is one of the two."""
        life = (worker_id, epoch)
        source = (self.fence.source_id, self.fence.source_epoch)
        return life in (source, (self.fence.destination_id, self.fence.destination_epoch))
