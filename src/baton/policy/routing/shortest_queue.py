"""The shortest prefill queue in tokens, then the least-loaded decode worker with room (0x08E)."""

from collections.abc import Sequence

from baton.core.ids import Role
from baton.policy.routing.choosing import decide
from baton.policy.routing.decision import Outcome, Pair
from baton.policy.routing.load import WorkerLoad, can_hold, least_loaded
from baton.policy.routing.question import RouteQuestion


def shortest_queue_pair(
    workers: Sequence[WorkerLoad], num_blocks: int, avoid_prefill: frozenset[str] = frozenset()
) -> Pair | None:
    """Shortest pending-token prefill queue, then least-loaded decode with K/V headroom.

    None when no decode worker can hold `num_blocks` now, or a phase has no worker.
    """
    route = _shortest(workers, num_blocks, avoid_prefill)
    return Pair(prefill=route[0].worker_id, decode=route[1].worker_id) if route else None


def shortest_queue_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """The default: no cache, no clocks."""
    route = _shortest(workers, question.num_blocks, question.avoid_prefill)
    if route is None:
        return None
    return decide(question, *route, reason="queue", price=route[0].pending_tokens)


def _shortest(
    workers: Sequence[WorkerLoad], num_blocks: int, avoid: frozenset[str]
) -> tuple[WorkerLoad, WorkerLoad] | None:
    mixed = [w for w in workers if w.role is Role.MIXED and can_hold(w, num_blocks)]
    if mixed:
        worker = min(mixed, key=lambda w: (w.pending_tokens, w.active_requests, w.worker_id))
        return worker, worker
    prefills = [w for w in workers if w.role is Role.PREFILL]
    preferred = [w for w in prefills if w.worker_id not in avoid]
    decodes = [w for w in workers if w.role is Role.DECODE and can_hold(w, num_blocks)]
    if not prefills or not decodes:
        return None
    prefill = min(preferred or prefills, key=lambda w: (w.pending_tokens, w.worker_id))
    return prefill, least_loaded(decodes)
