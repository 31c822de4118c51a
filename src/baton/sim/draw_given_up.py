"""Draws workers that count as lost and run on, so that what they still write comes late."""

from random import Random

from msgspec.structs import replace

from baton.core.ids import Role
from baton.sim.faults import GiveUp
from baton.sim.plan import Plan


def with_given_up(random: Random, plan: Plan) -> Plan:
    """A quarter of the troubled plans, on a wire so slow that bytes are on it at that moment."""
    if not plan.scheduled or random.random() >= 1 / 4:
        return plan
    lost = [_give_up(random, plan) for _ in range(random.choice([1, 2, 4]))]
    hardware = replace(plan.hardware, copy_us=20_000)
    return replace(plan, scheduled=(*plan.scheduled, *lost), hardware=hardware)


def _give_up(random: Random, plan: Plan) -> GiveUp:
    """Mostly a source, while it may be sending."""
    sources = [
        worker_id
        for worker_id, role in zip(plan.worker_ids, plan.roles, strict=True)
        if role is not Role.DECODE
    ]
    return GiveUp(
        at_us=random.choice(plan.arrivals).at_us + int(10 ** random.uniform(4, 5.5)),
        worker_id=random.choice(sources if random.random() < 0.8 else plan.worker_ids),
        runs_on_us=int(10 ** random.uniform(3, 6.5)),
        down_us=random.choice([1_000, 50_000, 500_000]),
    )
