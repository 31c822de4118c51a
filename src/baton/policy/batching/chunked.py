"""Chunked prefill three ways: SARATHI, Sarathi-Serve and vLLM v1 (specification 0x00D, 0x04)."""

from baton.policy.batching.view import BatchLimits, QueueView, Rows, cut, decode_rows, startable


def sarathi_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Decode-maximal: exactly one chunk of one prompt anchors the step, decodes piggyback.

    The chunk fills the token budget beside the decodes, C = tile - (B - 1), so that the fused rows
    are a multiple of the tile. Without a prompt the step is decodes alone.
    """
    decodes = decode_rows(view.decodes, limits)
    anchor = next(startable(view.prefills), None)
    if anchor is None:
        return decodes
    piggybacked = decodes[: min(limits.max_num_seqs, limits.max_batch_tokens) - 1]
    rows = cut(anchor, limits.max_batch_tokens - len(piggybacked), limits.grid)
    return [*piggybacked, (anchor.key, rows)]


def sarathi_serve_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Stall-free: every decode first, then chunks in the order of the queue up to the budget.

    A decode never waits for a prompt, and the budget bounds how long one step may take. Nobody
    overtakes a prompt that was cut, so at most the last one of a step is.
    """
    chosen = decode_rows(view.decodes, limits)
    budget = limits.max_batch_tokens - len(chosen)
    for entry in startable(view.prefills):
        if len(chosen) >= limits.max_num_seqs or budget <= 0:
            break
        rows = cut(entry, budget, limits.grid)
        chosen.append((entry.key, rows))
        budget -= rows
        if rows < entry.num_rows:
            break
    return chosen


def token_budget_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """vLLM v1's frontier: running requests in order of arrival whatever their phase, then new ones.

    Prompt and output rows are the same kind of work: each request asks for all that it lacks and
    takes what is left of the budget. The last one of a step may be cut.
    """
    entries = view.in_arrival_order()
    started = [entry for entry in entries if entry.num_iterations]
    fresh = [entry for entry in entries if not entry.num_iterations]
    chosen: list[Rows] = []
    budget = limits.max_batch_tokens
    for entry in startable([*started, *fresh]):
        if len(chosen) >= limits.max_num_seqs or budget <= 0:
            break
        rows = cut(entry, budget, limits.grid)
        chosen.append((entry.key, rows))
        budget -= rows
    return chosen
