"""Plans in which history moves between workers: returned, replicated, few or many at a time."""

from random import Random

from msgspec.structs import replace

from baton.core.cache import Milestone
from baton.sim.faults import Clear
from baton.sim.plan import Arrival, Plan


def with_copies(random: Random, plan: Plan) -> Plan:
    """Half of the plans that keep answers return them; hot prefixes are soon hot; some clear."""
    cache = plan.cache
    if cache.milestone is Milestone.DECODE and random.random() < 0.5:
        cache = replace(cache, milestone=Milestone.BIDIRECTIONAL)
    cache = replace(
        cache,
        replicate_hits=random.choice([0, 0, 1, 2]),
        max_replicas=random.choice([1, 2, 4]),
        max_copies=random.choice([0, 1, 2, 16, 16]),
        copy_timeout_ms=random.choice([50, 500, 10_000, 10_000]),
    )
    plan = replace(plan, cache=cache, arrivals=(*plan.arrivals, *_again(random, plan)))
    if not plan.scheduled or random.random() < 0.7:
        return plan
    clears = [
        Clear(at_us=random.randrange(plan.fault_end_us)) for _ in range(random.choice([1, 3]))
    ]
    return replace(plan, scheduled=(*plan.scheduled, *clears))


def _again(random: Random, plan: Plan) -> list[Arrival]:
    """In some plans clients begin again with what others have asked, so that prefixes are hot."""
    if not plan.arrivals or random.random() < 0.5:
        return []
    later = []
    for number in range(random.choice([2, 4, 8])):
        first = random.choice(plan.arrivals)
        request = first.request
        room = plan.max_model_len - request.sampling.max_tokens - 1
        prompt = (*request.prompt_token_ids, random.randrange(50))[: max(1, room)]
        request = replace(
            request, request_id=f"{request.request_id}-again-{number}", prompt_token_ids=prompt
        )
        at_us = first.at_us + random.choice([0, 20_000, 200_000, 800_000])
        later.append(Arrival(at_us=at_us, request=request))
    return later
