"""One phase before the other: prefill-first, decode-first, and phase-pure steps (0x00C, 0x08H)."""

from collections.abc import Iterable, Sequence

from baton.core.ids import PromptOrder
from baton.policy.batching.view import (
    BatchLimits,
    Entry,
    QueueView,
    Rows,
    cut,
    decode_rows,
    startable,
    whole_prompts,
)


def is_impatient(entry: Entry, limits: BatchLimits) -> bool:
    """True when the other phase has kept it waiting long or often enough (Splitwise, 0x08H)."""
    aged = 0 < limits.age_override_us <= entry.waited_us
    return aged or 0 < limits.max_passed_over <= entry.num_passed_over


def choose_mixed_phase(prompt_pending: bool, token: Entry, limits: BatchLimits) -> str:
    """Which phase a mixed worker runs next, for one waiting token: "prompt" or "token" (0x08H)."""
    if not prompt_pending or is_impatient(token, limits):
        return "token"
    return "prompt"


def prefill_first_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Whole prompts while there are any, without the decodes; only impatient decodes join in.

    Prompts start at once, and token cadence waits for them.
    """
    prompts = list(startable(view.prefills))
    due = [d for d in view.decodes if choose_mixed_phase(bool(prompts), d, limits) == "token"]
    chosen = decode_rows(due, limits)
    if not prompts or (chosen and limits.max_num_seqs == 1):
        return chosen
    # At least the head runs, beside however many impatient decodes.
    chosen = chosen[: limits.max_num_seqs - 1]
    return [*chosen, *whole_prompts(prompts, limits, num_seqs=len(chosen))]


def whole_hybrid_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Whole prompts in their order, and decodes beside them in the room that is left.

    Prompts start at once and streams go on, in steps as long as a prompt; a decode that finds no
    room is passed over until it is impatient (Splitwise's mixed batching).
    """
    due = [entry for entry in view.decodes if is_impatient(entry, limits)]
    chosen = decode_rows(due, limits)[: max(1, limits.max_num_seqs - 1)]
    prompts = whole_prompts(list(view.prefills), limits, num_seqs=len(chosen))
    if not prompts:
        return decode_rows(view.decodes, limits)
    left = limits.max_batch_tokens - len(chosen) - sum(rows for _, rows in prompts)
    left = max(0, min(left, limits.max_num_seqs - len(chosen) - len(prompts)))
    keys = {key for key, _ in chosen}
    others = [(entry.key, 1) for entry in view.decodes if entry.key not in keys][:left]
    return [*chosen, *others, *prompts]


def decode_first_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Decodes alone while there are any; prompts run when there are none, or grow impatient.

    Token cadence is that of decodes alone, and prompts queue.
    """
    due: Iterable[Entry] = startable(view.prefills)
    if view.decodes:
        due = (entry for entry in due if is_impatient(entry, limits))
    chosen = decode_rows(view.decodes, limits)
    return [*chosen, *whole_prompts(list(due), limits, num_seqs=len(chosen))]


def phase_pure_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Prompts alone or decodes alone, for split workers.

    Prompts run in the order of `prompt_order` under the token cap; one above it is cut, and goes
    on before any other. A worker that holds both phases, as for a recompute, alternates.
    """
    prompts = _ordered(list(startable(view.prefills)), limits)
    waiting_decodes = [entry for entry in view.decodes if entry.num_passed_over]
    if not prompts or waiting_decodes:
        return decode_rows(view.decodes, limits)
    head = prompts[0]
    if head.num_rows > limits.max_batch_tokens:
        return [(head.key, cut(head, limits.max_batch_tokens, limits.grid))]
    return whole_prompts(prompts, limits)


def _ordered(prompts: Sequence[Entry], limits: BatchLimits) -> list[Entry]:
    """Prompts that have started first, then the window by length, then the rest as they came."""
    if limits.prompt_order is PromptOrder.FCFS:
        return list(prompts)
    started = [entry for entry in prompts if entry.num_iterations]
    fresh = [entry for entry in prompts if not entry.num_iterations]
    window, rest = fresh[: limits.prompt_window], fresh[limits.prompt_window :]
    longest_first = limits.prompt_order is PromptOrder.LJF
    window.sort(key=lambda entry: -entry.num_rows if longest_first else entry.num_rows)
    return [*started, *window, *rest]
