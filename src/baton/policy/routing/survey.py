"""One pass over the workers: who may serve which phase, and who holds most of the prompt."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.question import RouteQuestion


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates for each phase. Where a mixed worker has room, only mixed ones are sources."""

    prefills: list[WorkerLoad]
    decodes: list[WorkerLoad]
    mixed: list[WorkerLoad]
    best_owner: str = ""
    """Who holds the longest prefix, of all workers that live."""
    best_blocks: int = 0

    @property
    def sources(self) -> list[WorkerLoad]:
        """Where a prompt may run; empty when its decode would find no room."""
        if self.mixed:
            return self.mixed
        return self.prefills if self.decodes else []


def survey(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Survey:
    """Sort the workers by phase; who failed this request is avoided while there is another."""
    num_blocks, avoid = question.num_blocks, question.avoid_prefill
    prefills: list[WorkerLoad] = []
    decodes: list[WorkerLoad] = []
    mixed: list[WorkerLoad] = []
    for worker in workers:
        role = worker.role
        if role is Role.PREFILL:
            prefills.append(worker)
        elif worker.accepting and worker.headroom_blocks >= num_blocks:
            (decodes if role is Role.DECODE else mixed).append(worker)
    if avoid:
        prefills = [w for w in prefills if w.worker_id not in avoid] or prefills
    owner, blocks = _best_owner(question, workers) if question.may_fetch else ("", 0)
    return Survey(
        prefills=prefills, decodes=decodes, mixed=mixed, best_owner=owner, best_blocks=blocks
    )


def _best_owner(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> tuple[str, int]:
    """The longest prefix; of equal ones the most in memory, then the least busy owner."""
    depths, most = question.depths, question.max_cached_blocks
    if not depths or not most:
        return "", 0
    avoid, get = question.avoid_prefill, depths.get
    live = [(min(depth, most), w) for w in workers if (depth := get(w.worker_id, 0))]
    longest = max([depth for depth, w in live if w.worker_id not in avoid], default=0)
    equal = [w for depth, w in live if depth == longest and w.worker_id not in avoid]
    if not equal:
        return "", 0
    memory = question.memory_depths.get
    best = min(
        equal,
        key=lambda w: (
            -min(memory(w.worker_id, 0), most),
            w.pending_us,
            w.active_requests,
            w.worker_id,
        ),
    )
    return best.worker_id, longest
