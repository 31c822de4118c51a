"""Request-level static batching: nobody joins until everybody has left (specification 0x00B)."""

from baton.policy.batching.view import BatchLimits, QueueView, Rows, whole_prompts


def static_batch(view: QueueView, limits: BatchLimits) -> list[Rows]:
    """Every member of the batch that has started, or a new batch of whole prompts if none has.

    The host holds back what has finished until the last member has: t_release(r) = t_start(B) +
    max over B of T_service.
    """
    entries = view.in_arrival_order()
    members = [entry for entry in entries if entry.num_iterations]
    if members:
        return [(entry.key, entry.num_rows) for entry in members if not entry.is_short]
    return whole_prompts(entries, limits)
