"""Which rows run in the next engine step: a pure function of the queue (specification 0x03A)."""

from collections.abc import Sequence

import msgspec


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one step; a chunk that does not end its prompt is cut on the `grid`."""

    max_batch_tokens: int
    max_num_seqs: int
    grid: int = 64


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A prefill that is not complete: its key, the next position and the rows left."""

    key: str
    position: int
    num_rows: int


def token_budget_batch(
    decodes: Sequence[str], prefills: Sequence[Waiting], limits: BatchLimits
) -> list[tuple[str, int]]:
    """Decode rows first, one each, then first-come-first-served prefill chunks to the budget.

    Returns (key, rows). A decode never waits for a prompt; the budget bounds how long one step
    may take. Nobody overtakes a prompt that was cut, so at most the last one of a step is. With no
    decodes the same function is a phase-pure prefill policy.
    """
    most = min(limits.max_num_seqs, limits.max_batch_tokens)
    chosen = [(key, 1) for key in decodes[:most]]
    budget = limits.max_batch_tokens - len(chosen)
    for waiting in prefills:
        if len(chosen) >= limits.max_num_seqs or budget <= 0:
            break
        rows = _cut(waiting, budget, limits.grid)
        if rows == 0:
            break
        chosen.append((waiting.key, rows))
        budget -= rows
        if rows < waiting.num_rows:
            break
    return chosen


def _cut(waiting: Waiting, budget: int, grid: int) -> int:
    """Rows that fit: all of them, else up to the last grid line, else whatever fits."""
    if waiting.num_rows <= budget:
        return waiting.num_rows
    end = waiting.position + budget
    aligned = end - end % grid - waiting.position
    return aligned if aligned > 0 else budget
