"""Which workers serve a request: pure functions over what the router knows (0x08E)."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A routable worker at this moment, with what the router itself has outstanding there."""

    worker_id: str
    role: Role
    pending_tokens: int
    active_requests: int
    headroom_blocks: int
    accepting: bool = True


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A route: where the prompt runs and where it decodes; equal means colocated."""

    prefill: str
    decode: str


def shortest_queue_pair(
    workers: Sequence[WorkerLoad], num_blocks: int, avoid_prefill: frozenset[str] = frozenset()
) -> Pair | None:
    """Shortest pending-token prefill queue, then least-loaded decode with K/V headroom.

    None when no decode worker can hold `num_blocks` now, or a phase has no worker.
    """
    mixed = [w for w in workers if w.role is Role.MIXED and _can_hold(w, num_blocks)]
    if mixed:
        worker = min(mixed, key=lambda w: (w.pending_tokens, w.active_requests, w.worker_id))
        return Pair(prefill=worker.worker_id, decode=worker.worker_id)
    prefills = [w for w in workers if w.role is Role.PREFILL]
    preferred = [w for w in prefills if w.worker_id not in avoid_prefill]
    decodes = [w for w in workers if w.role is Role.DECODE and _can_hold(w, num_blocks)]
    if not prefills or not decodes:
        return None
    prefill = min(preferred or prefills, key=lambda w: (w.pending_tokens, w.worker_id))
    return Pair(prefill=prefill.worker_id, decode=_least_loaded(decodes).worker_id)


def recompute_worker(workers: Sequence[WorkerLoad], num_blocks: int) -> Pair | None:
    """The least-loaded decode-capable worker, running both phases itself (0x10)."""
    able = [w for w in workers if w.role is not Role.PREFILL and _can_hold(w, num_blocks)]
    if not able:
        return None
    worker = _least_loaded(able)
    return Pair(prefill=worker.worker_id, decode=worker.worker_id)


def _can_hold(worker: WorkerLoad, num_blocks: int) -> bool:
    return worker.accepting and worker.headroom_blocks >= num_blocks


def _least_loaded(workers: Sequence[WorkerLoad]) -> WorkerLoad:
    return min(workers, key=lambda w: (w.active_requests, -w.headroom_blocks, w.worker_id))
