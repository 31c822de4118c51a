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
    is_prefill, is_decode = Role.PREFILL, Role.DECODE  # looking up a member costs as much as a test
    for worker in workers:
        role = worker.role
        if role is is_prefill:
            prefills.append(worker)
        elif worker.accepting and worker.headroom_blocks >= num_blocks:
            (decodes if role is is_decode else mixed).append(worker)
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
    longest = min(max(depths.values()), most)
    equal = _owners_of(question, workers, longest)
    if not equal:  # who holds most is not routable, or is avoided
        avoid, get = question.avoid_prefill, depths.get
        longest = max(
            [min(get(w.worker_id, 0), most) for w in workers if w.worker_id not in avoid], default=0
        )
        equal = _owners_of(question, workers, longest) if longest else []
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


def _owners_of(
    question: RouteQuestion, workers: Sequence[WorkerLoad], num_blocks: int
) -> list[WorkerLoad]:
    """Who holds so many leading blocks and is not avoided."""
    get, avoid = question.depths.get, question.avoid_prefill
    found = [w for w in workers if get(w.worker_id, 0) >= num_blocks]
    return [w for w in found if w.worker_id not in avoid] if avoid else found
