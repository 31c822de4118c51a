"""Mooncake's Algorithm 1: remote reuse is priced above a ratio, both clocks gate (0x09I)."""

from collections.abc import Sequence

from baton.policy.routing.by_price import route_by_price
from baton.policy.routing.decision import Outcome
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.price import fetched_terms, held_blocks, local_terms
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import survey


def conductor_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """The source of least TTFT, the decode worker of least TBT, refused if a clock would fail."""
    return algorithm_1(question, workers, gated=True)


def algorithm_1(question: RouteQuestion, workers: Sequence[WorkerLoad], *, gated: bool) -> Outcome:
    """With `gated` both SLOs are tested; the decode worker is then the one of least TBT."""
    found = survey(question, workers)
    sources = found.sources
    if not sources:
        return None
    best, ratio = found.best_blocks, max(1.0, question.balancing_threshold)
    held = held_blocks(question, sources)
    before, computes = local_terms(question, sources, held)
    if not best or not question.bytes_per_us:
        prices = [
            w.pending_us + wait_us + compute_us
            for w, wait_us, compute_us in zip(sources, before, computes, strict=True)
        ]
        return route_by_price(question, found, prices, reason="ttft", by_tpot=gated, gated=gated)
    # Compared without dividing, so that a worker that has nothing exceeds every threshold.
    remote = [best > depth * ratio for depth in held]
    waits, fetched = fetched_terms(question, found, sources, held)
    prices = [
        w.pending_us + (wait_us + fetch_us if is_remote else load_us + compute_us)
        for w, is_remote, wait_us, fetch_us, load_us, compute_us in zip(
            sources, remote, waits, fetched, before, computes, strict=True
        )
    ]
    return route_by_price(
        question,
        found,
        prices,
        reason="ttft",
        fetches=remote.__getitem__,
        by_tpot=gated,
        gated=gated,
    )
