"""How many tokens one iteration may hold so that no decode waits longer than its target (0x04)."""

from collections.abc import Callable
from enum import StrEnum

import msgspec


class BudgetOutcome(StrEnum):
    """How a token budget came about."""

    FOUND = "found"
    AT_LIMIT = "at_limit"
    """Even the largest measured step stays under the target; a larger one is not known."""
    NO_ROOM_FOR_PREFILL = "no_room_for_prefill"
    """The decodes fit; with one prompt row beside them the step is too long."""
    DECODE_ONLY_MISSES = "decode_only_misses"
    """The decode batch alone takes longer than the target: no budget helps, fewer decodes do."""


class TokenBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The largest iteration under a time-between-tokens target, decode tokens included."""

    num_tokens: int
    step_us: float
    """Predicted time of that iteration, serving overhead included."""
    tbt_us: float
    outcome: BudgetOutcome


def largest_chunk(
    iteration_us: Callable[[int], float], most: int, tbt_us: float
) -> tuple[int, BudgetOutcome]:
    """The largest chunk, at most `most`, whose iteration takes no longer than the target.

    `iteration_us(0)` is the decode batch alone; more rows must never take less time.
    """
    if iteration_us(0) > tbt_us:
        return 0, BudgetOutcome.DECODE_ONLY_MISSES
    if iteration_us(1) > tbt_us:
        return 0, BudgetOutcome.NO_ROOM_FOR_PREFILL
    if iteration_us(most) <= tbt_us:
        return most, BudgetOutcome.AT_LIMIT
    fits, misses = 1, most
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if iteration_us(middle) <= tbt_us:
            fits = middle
        else:
            misses = middle
    return fits, BudgetOutcome.FOUND
