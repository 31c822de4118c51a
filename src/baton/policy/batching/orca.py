"""ORCA's selection: iteration-level first-come-first-served with whole-length reservation."""

from baton.policy.batching.view import BatchLimits, QueueView, Rows


def orca_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """The earliest requests, prompts uncut beside decodes, one iteration each (OSDI'22, Select).

    A request that has not started must fit its whole length into the slots that are not reserved,
    or the selection stops: nobody skips ahead, so an earlier request never has run fewer
    iterations than a later one. The engine flattens all rows and splits attention only.
    """
    entries = view.in_arrival_order()
    reserved = sum(entry.reserved_tokens for entry in entries if entry.num_iterations)
    chosen: list[Rows] = []
    for entry in entries:
        if len(chosen) >= limits.max_num_seqs or entry.is_short:
            break
        if not entry.num_iterations:
            reserved += entry.reserved_tokens
            # The first of an empty pool runs whatever it reserves: it could never wait for more.
            if limits.num_slots and reserved > limits.num_slots and chosen:
                break
        chosen.append((entry.key, entry.num_rows))
    return chosen
