"""What the scheduler's side orders of the workers' side, and what it hears back.

Orders travel inside vLLM's connector metadata, in order, with the step during which they came up.
"""

import msgspec

from baton.core.request import Token
from baton.integrations.vllm.ticket import Ticket


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all orders."""


class Watch(_Order, frozen=True, kw_only=True, tag="watch"):
    """A prompt that waits for room at the destination: keep its source's copy alive."""

    vllm_id: str
    ticket: Ticket


class Load(_Order, frozen=True, kw_only=True, tag="load"):
    """Fill these blocks from the source of the ticket; answered by exactly one LoadEnded."""

    vllm_id: str
    ticket: Ticket | None
    """None where the request had no valid one: then the load fails for `refusal`."""
    refusal: str = ""
    token_ids: tuple[int, ...]
    token_start: int
    """Rows before it are here already; a multiple of the block size."""
    visible_blocks: tuple[int, ...]
    block_ids: tuple[int, ...]
    """Of the missing rows, in token order."""
    num_legs: int = 1
    """Source ranks that fill these blocks of this rank; each rank works it out."""


class AbortLoad(_Order, frozen=True, kw_only=True, tag="abort_load"):
    """The request of a load is over: stop, and answer as ever once the blocks are quiet."""

    vllm_id: str


class Drop(_Order, frozen=True, kw_only=True, tag="drop"):
    """This request loads nothing under its ticket: the source may let go."""

    vllm_id: str
    ticket: Ticket
    is_shared: bool = False
    """Another request loads, or has loaded, under the ticket: the source hears nothing."""


class Stream(_Order, frozen=True, kw_only=True, tag="stream"):
    """Push: this step computes rows `start .. end-1` of a prompt that is handed over."""

    vllm_id: str
    ticket: Ticket
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    start: int
    end: int


class Hold(_Order, frozen=True, kw_only=True, tag="hold"):
    """The prompt is complete: keep its blocks until they are published elsewhere, or the end.

    Answered by exactly one HoldEnded.
    """

    vllm_id: str
    ticket: Ticket
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    first_token: Token
    num_cached_tokens: int


class AbortHold(_Order, frozen=True, kw_only=True, tag="abort_hold"):
    """The prompt of a stream will not be completed: stop reading its blocks.

    Answered by HoldEnded if `is_awaited`.
    """

    vllm_id: str
    reason: str
    is_awaited: bool


class Refused(_Order, frozen=True, kw_only=True, tag="refused"):
    """Parameters of a request were not honoured; counted where an operator can ask for it."""

    reason: str


Order = Refused | Watch | Load | AbortLoad | Drop | Stream | Hold | AbortHold


class StepOrders(msgspec.Struct, frozen=True, kw_only=True):
    """All orders of one step."""

    orders: tuple[Order, ...] = ()
    is_idle: bool = False
    """No row is computed in this step: the workers may rest a moment instead of spinning."""


class LoadEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Published and readable, or failed: then nobody can write the blocks any more."""

    vllm_id: str
    failed_blocks: tuple[int, ...] = ()
    reason: str = ""

    @property
    def is_published(self) -> bool:
        """Whether the blocks hold the prompt's state."""
        return not self.reason


class HoldEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody reads the blocks any more."""

    vllm_id: str


Ended = LoadEnded | HoldEnded
