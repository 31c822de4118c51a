"""Policies that price every source on its own, then choose the decode worker apart from it."""

from collections.abc import Callable, Sequence

from baton.core.ids import Direction
from baton.policy.routing.choosing import cheapest, decide, fastest_decode, others, refusal
from baton.policy.routing.decision import Fetch, Outcome
from baton.policy.routing.load import WorkerLoad, least_loaded
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import Survey


def route_by_price(
    question: RouteQuestion,
    found: Survey,
    prices: list[float],
    *,
    reason: str,
    fetches: Callable[[int], bool] = lambda index: False,
    by_tpot: bool = False,
    gated: bool = False,
    direction: Direction | None = None,
) -> Outcome:
    """The cheapest source; the least-loaded decode worker, or the fastest one.

    `fetches` says of a source whether the best prefix is copied to it first. With `gated` a route
    that misses a clock is refused.
    """
    sources = found.sources
    index = cheapest(sources, prices)
    prefill = sources[index]
    decode = prefill if found.mixed else _decode(found.decodes, by_tpot)
    fetch = None
    if fetches(index):
        fetch = Fetch(owner=found.best_owner, num_blocks=found.best_blocks)
    decision = decide(
        question,
        prefill,
        decode,
        reason="fetch" if fetch else reason,
        price=prices[index],
        fetch=fetch,
        direction=direction,
        alternatives=others(found, prices, index, decode),
    )
    return (refusal(question, decision) if gated else None) or decision


def _decode(workers: Sequence[WorkerLoad], by_tpot: bool) -> WorkerLoad:
    return fastest_decode(workers) if by_tpot else least_loaded(workers)
