"""Who computes a prompt and decodes it alone, when no pair is left to try (0x10)."""

from collections.abc import Sequence

from baton.core.ids import Role
from baton.policy.routing.decision import Pair
from baton.policy.routing.load import WorkerLoad, can_hold, least_loaded


def recompute_worker(workers: Sequence[WorkerLoad], num_blocks: int) -> Pair | None:
    """The least-loaded decode-capable worker, running both phases itself (0x10)."""
    able = [w for w in workers if w.role is not Role.PREFILL and can_hold(w, num_blocks)]
    if not able:
        return None
    worker = least_loaded(able)
    return Pair(prefill=worker.worker_id, decode=worker.worker_id)
