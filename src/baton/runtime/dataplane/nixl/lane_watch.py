"""Which ways orders really took: counted, said once for each peer, and warned of when slow."""

from collections import Counter

from baton.runtime.dataplane.nixl.lanes import LaneLog, Operation
from baton.runtime.dataplane.nixl.peer import Peer
from baton.runtime.notice import notice

_PROBLEMS_MAX = 20


class LaneWatch:
    """Kept by the agent's thread; `counts` is read by others."""

    def __init__(self, log: LaneLog) -> None:
        self.counts: Counter[str] = Counter()
        """Orders by lane."""
        self.worker_id = ""
        self._log = log
        self._num_problems = 0

    def landed(self, peer: Peer, operation: Operation) -> None:
        """One order to or from `peer` has ended well."""
        lane = peer.lanes.get(operation)
        if lane is None:
            before = self._log.explained(operation)
            self._tell_problems(self._log.read())
            lane = peer.lanes[operation] = self._log.lane_of(operation, before)
            self._tell(peer, operation, lane)
        self.counts[lane] += 1

    def _tell(self, peer: Peer, operation: Operation, lane: str) -> None:
        preposition = "to" if operation == "write" else "from"
        text = f"K/V {preposition} {peer.descriptor.worker_id} moves by nixl over {lane}"
        if peer.is_fallback(operation):
            text += (
                " although both are on this host: several times slower than through its memory. "
                "Both processes must have one user and one pid namespace (container), and UCX_TLS "
                "must not leave cma out"
            )
        notice(self.worker_id, text)

    def _tell_problems(self, problems: list[str]) -> None:
        for line in problems[: _PROBLEMS_MAX - self._num_problems]:
            notice(self.worker_id, line)
        self._num_problems = min(_PROBLEMS_MAX, self._num_problems + len(problems))
