"""Which workers serve a request, compiled: `choose` by the code of a policy.

How a loop uses it: `fleet = make_fleet(roles)` once, then before each question fill `fleet.loads`
and `fleet.clocks` (columns in `routes_fleet`; DEPTH and MEMORY_DEPTH by `prefixes.find_depths`,
nothing where `uses_cache` is False), the question in `fleet.counts` and `fleet.values`, and call
`choose(fleet, code)`. ROUTED: start counts[CHOSEN_PREFILL] and counts[CHOSEN_DECODE]; NO_ROOM: let
it wait; otherwise refuse it, its clocks are in the answer. What the loop wrote stays as it is, so
that it may set only what has changed. `draws` gives each request its number for `random`.

Ties are broken as production does: by price, then pending tokens, requests and the worker's name
(its RANK). Two policies exist here alone. Round robin takes the next worker in the order of names
that may serve, for each phase on its own. Pending tokens is Splitwise's join-the-shortest-queue:
the fewest prompt tokens to compute, and the fewest tokens on the decode account (of a mixed worker
the sum of both), no clocks and no prefixes.
"""

import numpy as np

from baton.compiled import compiled
from baton.errors import ConfigError
from baton.sim.fast.routes_fleet import Fleet, Ints
from baton.sim.fast.routes_pair import by_pair
from baton.sim.fast.routes_policies import (
    CONDUCTOR,
    DISTSERVE,
    GLOBAL_CACHE,
    LOAD_BALANCE,
    LOCAL_CACHE,
    MEMSERVE,
    PAIR,
    RANDOM,
    ROUND_ROBIN,
    SHORTEST_QUEUE,
    TOKENS,
    by_prefix,
    by_queue,
)

ROUTE_CODES = {
    "shortest_queue": SHORTEST_QUEUE,
    "distserve": DISTSERVE,
    "load_balance": LOAD_BALANCE,
    "random": RANDOM,
    "round_robin": ROUND_ROBIN,
    "pending_tokens": TOKENS,
    "local_cache_aware": LOCAL_CACHE,
    "global_cache_aware": GLOBAL_CACHE,
    "memserve": MEMSERVE,
    "conductor": CONDUCTOR,
    "pair": PAIR,
}


def route_code(name: str) -> int:
    """The code of a policy. Raises ConfigError."""
    code = ROUTE_CODES.get(name)
    if code is None:
        raise ConfigError(f"route {name!r}: use one of {', '.join(ROUTE_CODES)}")
    return code


def uses_cache(code: int) -> bool:
    """It wants the depths of the prompt's kept prefixes."""
    return code >= LOCAL_CACHE


def draws(seed: int, num_requests: int) -> Ints:
    """A number for each request, for `Question.draw`: equal seeds give equal numbers."""
    return np.random.default_rng(seed).integers(0, 1 << 62, num_requests)


@compiled
def choose(fleet: Fleet, code: int) -> int:
    """A route, a refusal, or none while nobody has room."""
    if code == PAIR:
        return by_pair(fleet)
    if code >= LOCAL_CACHE:
        return by_prefix(fleet, code)
    return by_queue(fleet, code)
