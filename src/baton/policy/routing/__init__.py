"""Which workers serve a request: policies over one question and the load of each worker (0x08E)."""

from baton.policy.routing.decision import Pair
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.recompute import recompute_worker
from baton.policy.routing.shortest_queue import shortest_queue_pair

__all__ = ["Pair", "WorkerLoad", "recompute_worker", "shortest_queue_pair"]
