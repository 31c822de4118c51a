"""What Mooncake's figure compares with: random, by load, and by the cache, local or global."""

from collections.abc import Sequence
from hashlib import blake2b

from baton.policy.routing.by_price import route_by_price
from baton.policy.routing.conductor import algorithm_1
from baton.policy.routing.decision import Outcome
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.price import held_blocks, local_terms, total_us
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import survey


def random_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """Any source, drawn by a hash of the attempt's name, so that equal runs stay equal."""
    found = survey(question, workers)
    sources = found.sources
    if not sources:
        return None
    number = int.from_bytes(blake2b(question.draw.encode(), digest_size=8).digest(), "little")
    drawn = sorted(w.worker_id for w in sources)[number % len(sources)]
    prices = [float(w.worker_id != drawn) for w in sources]
    return route_by_price(question, found, prices, reason="random")


def load_balance_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """The shortest queue in time; what is cached does not count."""
    found = survey(question, workers)
    if not found.sources:
        return None
    prices = [w.pending_us for w in found.sources]
    return route_by_price(question, found, prices, reason="load")


def local_cache_aware_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """Queue and prefill from each worker's own prefix; nothing is copied."""
    found = survey(question, workers)
    sources = found.sources
    if not sources:
        return None
    local = total_us(local_terms(question, sources, held_blocks(question, sources)))
    prices = [w.pending_us + us for w, us in zip(sources, local, strict=True)]
    return route_by_price(question, found, prices, reason="prefix and queue")


def global_cache_aware_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """Algorithm 1's choice of a source, without its gates."""
    return algorithm_1(question, workers, gated=False)
