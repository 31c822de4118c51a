"""Draws lower tiers, how history is given up, and what goes wrong below memory."""

from random import Random

from msgspec.structs import replace

from baton.cache.eviction import POLICIES
from baton.sim.faults import FaultRates
from baton.sim.plan import Plan


def with_tiers(random: Random, plan: Plan) -> Plan:
    """A third of the plans have lower tiers, most of them too small; half evict otherwise."""
    if random.random() < 0.5:
        cache = replace(plan.cache, eviction=random.choice(sorted(POLICIES)))
        plan = replace(plan, cache=cache)
    if random.random() >= 1 / 3:
        return plan
    kinds = random.choice(["host", "disk", "both", "both"])
    sizes = [1, 2, 4, 8, 16, 64]
    plan = replace(
        plan,
        num_host_blocks=0 if kinds == "disk" else random.choice(sizes),
        num_disk_blocks=0 if kinds == "host" else random.choice(sizes),
    )
    if plan.rates == FaultRates() and not plan.scheduled:
        return plan  # a calm plan stays calm
    rates = {
        kind: random.choice([0.02, 0.1, 0.5])
        for kind in ("tier_fail", "tier_corrupt")
        if random.random() < 0.4
    }
    return replace(plan, rates=replace(plan.rates, **rates))
