"""What a batch policy sees of an engine queue, and the bounds that it keeps (0x03A)."""

from collections.abc import Iterator, Sequence

import msgspec

from baton.core.ids import PromptOrder


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one step. A chunk that does not end its prompt is cut on the `grid`.

    `num_slots` are the K/V rows of the pool (0: not counted), which ORCA reserves for a request's
    whole length. `prompt_window` bounds how far SJF and LJF look, so that nobody starves.
    `age_override_us` and `max_passed_over` end the patience of a phase that the other one keeps
    waiting (0: no end).
    """

    max_batch_tokens: int
    max_num_seqs: int
    grid: int = 64
    num_slots: int = 0
    prompt_order: PromptOrder = PromptOrder.FCFS
    prompt_window: int = 16
    age_override_us: int = 0
    max_passed_over: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence: `num_rows` rows from `position` on are missing before its next token.

    `arrival` orders the sequences of a worker. `waited_us` runs since its last rows, or since it
    came; `num_passed_over` counts the steps since then that ran without it.
    """

    key: str
    num_rows: int = 1
    position: int = 0
    arrival: int = 0
    reserved_tokens: int = 0
    """Prompt and longest output together."""
    num_iterations: int = 0
    waited_us: int = 0
    num_passed_over: int = 0
    has_blocks: bool = True
    is_short: bool = False
    """It was given no blocks just now."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences with one pending token, and sequences whose prompt is not computed yet.

    Both in the order in which the queue serves them; a preempted sequence is a prompt again.
    """

    decodes: Sequence[Entry] = ()
    prefills: Sequence[Entry] = ()

    def in_arrival_order(self) -> list[Entry]:
        """Every sequence, whatever its phase."""
        return sorted([*self.decodes, *self.prefills], key=lambda entry: entry.arrival)


Rows = tuple[str, int]
"""A sequence's key and how many of its rows run in this step."""


def startable(prefills: Sequence[Entry]) -> Iterator[Entry]:
    """Prompts that can run. Who cannot get blocks lets those pass that have theirs."""
    short = False
    for entry in prefills:
        short |= entry.is_short
        if entry.has_blocks or not short:
            yield entry


def cut(entry: Entry, budget: int, grid: int) -> int:
    """Rows that fit: all of them, else up to the last grid line, else whatever fits."""
    if entry.num_rows <= budget:
        return entry.num_rows
    end = entry.position + budget
    aligned = end - end % grid - entry.position
    return aligned if aligned > 0 else budget


def decode_rows(decodes: Sequence[Entry], limits: BatchLimits) -> list[Rows]:
    """One row for each decode, as many as a step may hold."""
    most = min(limits.max_num_seqs, limits.max_batch_tokens)
    return [(entry.key, 1) for entry in decodes[:most]]


def whole_prompts(
    prefills: Sequence[Entry], limits: BatchLimits, num_tokens: int = 0, num_seqs: int = 0
) -> list[Rows]:
    """Prompts uncut, in their order, while they fit beside what is chosen already.

    Nobody is skipped to fill the rest. A prompt above the whole budget runs alone, uncut.
    """
    chosen: list[Rows] = []
    for entry in startable(prefills):
        fits = num_tokens + entry.num_rows <= limits.max_batch_tokens
        if num_seqs + len(chosen) >= limits.max_num_seqs or not (fits or num_tokens == 0):
            break
        chosen.append((entry.key, entry.num_rows))
        num_tokens += entry.num_rows
    return chosen
