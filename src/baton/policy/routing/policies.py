"""The route policies by name: one interface for the real router and the simulated one."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from baton.policy.routing.baselines import (
    global_cache_aware_route,
    load_balance_route,
    local_cache_aware_route,
    random_route,
)
from baton.policy.routing.conductor import conductor_route
from baton.policy.routing.decision import Outcome
from baton.policy.routing.distserve import distserve_route
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.memserve import memserve_route
from baton.policy.routing.pair import pair_route
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.shortest_queue import shortest_queue_route


class Chooses(Protocol):
    """A pure function: equal questions over equal loads, in whatever order, get equal answers."""

    def __call__(self, question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
        """A route, a refusal, or None while nobody has room."""


class RoutePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How routes are chosen, and what the router has to know for it."""

    name: str
    choose: Chooses
    uses_cache: bool = False
    """It wants the depths of the prompt's cached prefixes."""


ROUTE_POLICIES: dict[str, RoutePolicy] = {
    policy.name: policy
    for policy in (
        RoutePolicy(name="shortest_queue", choose=shortest_queue_route),
        RoutePolicy(name="distserve", choose=distserve_route),
        RoutePolicy(name="memserve", choose=memserve_route, uses_cache=True),
        RoutePolicy(name="conductor", choose=conductor_route, uses_cache=True),
        RoutePolicy(name="pair", choose=pair_route, uses_cache=True),
        RoutePolicy(name="random", choose=random_route),
        RoutePolicy(name="load_balance", choose=load_balance_route),
        RoutePolicy(name="local_cache_aware", choose=local_cache_aware_route, uses_cache=True),
        RoutePolicy(name="global_cache_aware", choose=global_cache_aware_route, uses_cache=True),
    )
}
