"""The router's index: never of a dead life, and in the end exactly what live workers hold."""

from collections.abc import Sequence

from baton.core.cache import Tier
from baton.core.effects import Effect
from baton.core.events import Event
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import World


class HoldingsAreTrue(Observer):
    """A claim is of a life that the router knows; at quiescence claims and blocks are the same."""

    name = "holdings-are-true"

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """Whoever claims anything is joined, in that life."""
        fleet = world.router.fleet
        for owner, (epoch, _) in world.router.context.holdings.owners().items():
            if fleet.get(owner, epoch) is None:
                self.fail(f"blocks are claimed for {owner} in epoch {epoch}, which is over")

    def quiet(self, world: World) -> None:
        """Compare name by name and tier by tier."""
        index = world.router.context.holdings
        claimed: dict[tuple[str, Tier], set[bytes]] = {}
        for block_hash in index:
            for place in index.places(block_hash):
                claimed.setdefault((place.owner, place.tier), set()).add(block_hash)
        for worker in world.workers.values():
            for tier, names in _held(worker).items():
                told = claimed.pop((worker.worker_id, tier), set())
                if told != names:
                    self.fail(
                        f"{worker.worker_id} {tier}: {len(told - names)} blocks are claimed and "
                        f"not there, {len(names - told)} are there and not claimed"
                    )
        for owner, tier in claimed:
            if owner not in world.workers and world.router.fleet.get(owner) is not None:
                continue  # it has just died, and the router will hear of it
            self.fail(f"blocks are claimed in the {tier} of {owner}, which is no live worker's")


def unheard(world: World) -> list[str]:
    """Workers some of whose changes the router has not followed yet, or that missed a clear."""
    found = []
    current = world.router.generations.current
    for worker in world.workers.values():
        if worker.node.context.cache_generation < current:
            found.append(f"{worker.worker_id} has not heard of the clear of generation {current}")
        feed = world.router.holdings.feed(worker.worker_id)
        told = worker.node.announcer.next_sequence
        if feed is not None and feed.epoch == worker.epoch and feed.next_sequence < told:
            found.append(f"router: changes {feed.next_sequence} to {told - 1} of {feed.owner}")
    return found


def _held(worker: SimWorker) -> dict[Tier, set[bytes]]:
    """What a worker announces, from its own books; nothing if it announces nothing."""
    held = {tier: set[bytes]() for tier in Tier}
    context = worker.node.context
    if not context.cache.announce:
        return held
    memory = context.memory
    held[Tier.MEMORY] = set(memory.pool.history)
    for table in memory.lower:
        held[table.tier] = {name for name in table.history if table.lookup(name) is not None}
    return held
