"""Is it worth sending a decode worker's history back to the prefill side? (0x09D, milestone 3)

The return path uses the link today to spare a prefill tomorrow, so it is priced: what a next turn
would recompute, times how likely a next turn is, against what moving the rows costs now.
"""

import msgspec

from baton.core.snapshot import Rates


class ReturnQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """History of one finished request. Tokens count whole blocks only."""

    num_tokens: int
    """Rows that the decode worker holds under their names."""
    num_held_tokens: int
    """Of those, the leading ones that the prefill worker holds already."""
    bytes_per_token: int
    continuation: float
    """Share of finished requests whose history a later prompt goes on from, 0 to 1."""
    prefill: Rates
    """Of the worker that would compute the rows."""
    bytes_per_us: float
    """Of the link; 0 until it was measured."""
    overhead_us: float


class ReturnPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of the bargain, in microseconds."""

    saved_us: float
    cost_us: float

    @property
    def pays(self) -> bool:
        """More is expected to be spared than is spent."""
        return self.saved_us > self.cost_us


def return_price(question: ReturnQuestion) -> ReturnPrice:
    """Price the rows that the prefill worker lacks; nothing to move, or no rate, saves nothing."""
    rows = question.num_tokens - question.num_held_tokens
    if rows <= 0 or not question.bytes_per_us:
        return ReturnPrice(saved_us=0.0, cost_us=0.0)
    pairs = rows * question.num_held_tokens + rows * (rows + 1) / 2
    rates = question.prefill
    compute_us = rates.prefill_us_per_token * rows + rates.prefill_us_per_pair * pairs
    moved_us = rows * question.bytes_per_token / question.bytes_per_us + question.overhead_us
    return ReturnPrice(saved_us=question.continuation * compute_us, cost_us=moved_us)
