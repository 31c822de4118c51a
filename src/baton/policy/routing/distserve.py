"""DistServe: shortest prefill queue in tokens, least-loaded decode worker, which pulls (0x08E)."""

from collections.abc import Sequence

from baton.core.ids import Direction
from baton.policy.routing.by_price import route_by_price
from baton.policy.routing.decision import Outcome
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import survey


def distserve_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """The decode worker fetches when it has room, and the source's memory is the buffer."""
    found = survey(question, workers)
    if not found.sources:
        return None
    prices = [float(w.pending_tokens) for w in found.sources]
    return route_by_price(question, found, prices, reason="queue", direction=Direction.PULL)
