"""What a client saw of one request, measured or simulated; every figure is derived from it."""

from enum import StrEnum
from itertools import pairwise

import msgspec


class Outcome(StrEnum):
    """How a request ended for its client."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds from the start of the run.

    `scheduled_us` is when the arrival process wanted the request sent: latency is counted from
    there, so a client that is late cannot hide a queue. `token_times_us` has one entry for each
    chunk with content, the first being the first content token; a chunk may carry several tokens,
    and `num_output_tokens` is what the server's usage says.
    """

    request_id: str
    scheduled_us: int
    sent_us: int
    token_times_us: tuple[int, ...]
    end_us: int
    num_prompt_tokens: int
    num_output_tokens: int
    outcome: Outcome
    error: str = ""
    mode: str = ""
    """How the server says that it ran: disaggregated, colocated, recomputed."""

    @property
    def ttft_us(self) -> int | None:
        """Time to the first content token; None when there was none."""
        return self.token_times_us[0] - self.scheduled_us if self.token_times_us else None

    @property
    def tpot_us(self) -> float | None:
        """Mean time per output token after the first; None for fewer than two tokens."""
        if not self.token_times_us or self.num_output_tokens < 2:
            return None
        return (self.token_times_us[-1] - self.token_times_us[0]) / (self.num_output_tokens - 1)

    @property
    def gaps_us(self) -> tuple[int, ...]:
        """Times between consecutive content chunks (ITL)."""
        times = self.token_times_us
        return tuple(b - a for a, b in pairwise(times))
