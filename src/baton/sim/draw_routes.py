"""Draws how a deployment routes, admits and orders, and which clients have targets."""

from random import Random

from msgspec.structs import replace

from baton.core.request import SLO
from baton.policy.routing.policies import ROUTE_POLICIES
from baton.sim.plan import Plan


def with_routes(random: Random, plan: Plan) -> Plan:
    """Most plans route in another way than by default; some refuse early, some clients have SLOs.

    No deployment has targets for all: whoever asks once everything is healed has to be served.
    """
    if random.random() < 0.3:
        return plan
    router = replace(
        plan.router,
        policy=random.choice(sorted(ROUTE_POLICIES)),
        balancing_threshold=random.choice([1.0, 2.0, 4.0]),
        admission=random.choice(["none", "none", "early", "predicted"]),
        fairness=random.choice(["fcfs", "tenants"]),
    )
    arrivals = [
        replace(arrival, request=replace(arrival.request, slo=_slo(random)))
        if random.random() < 0.2
        else arrival
        for arrival in plan.arrivals
    ]
    return replace(plan, router=router, arrivals=tuple(arrivals))


def _slo(random: Random) -> SLO:
    return SLO(
        ttft_us=random.choice([0, 1_000, 50_000, 1_000_000]),
        tpot_us=random.choice([0, 300, 5_000, 100_000]),
    )
