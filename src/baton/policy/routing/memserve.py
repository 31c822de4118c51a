"""MemServe: prompt trees that compete with load, and a fetch that has to pay for itself (0x09F)."""

from collections.abc import Sequence

from baton.policy.routing.by_price import route_by_price
from baton.policy.routing.decision import Outcome
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.price import fetched_terms, held_blocks, local_terms, total_us
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import survey


def memserve_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """argmin over p of queue(p) + exec(x, y_p).

    The winner fetches from p' only if T_transfer(y_p, y_p') <= exec(x, y_p) - exec(x, y_p').
    """
    found = survey(question, workers)
    sources = found.sources
    if not sources:
        return None
    held = held_blocks(question, sources)
    local = total_us(local_terms(question, sources, held))
    prices = [w.pending_us + price for w, price in zip(sources, local, strict=True)]

    def fetches(index: int) -> bool:
        only = slice(index, index + 1)
        terms = fetched_terms(question, found, sources[only], held[only])
        return total_us(terms)[0] <= local[index]

    return route_by_price(question, found, prices, reason="prefix and queue", fetches=fetches)
