"""The leak check at quiescence: nothing is held anywhere, and every request has one end."""

from baton.core.delivery import Failed, Finished
from baton.sim.checks.holdings import unheard
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import World


class NothingHeld(Observer):
    """Blocks are free or history; no job, reservation, sequence, lease or record is left."""

    name = "nothing-held"

    def quiet(self, world: World) -> None:
        """Look into every worker and the router."""
        for found in leftovers(world):
            self.fail(found)
        for request_id, deliveries in world.deliveries.items():
            ends = [d for d in deliveries if isinstance(d, Finished | Failed)]
            if len(ends) != 1:
                self.fail(f"{request_id} has {len(ends)} ends")


def leftovers(world: World) -> list[str]:
    """Everything that is still held."""
    found = [text for worker in world.workers.values() for text in _of_worker(worker)]
    router = world.router
    found += unheard(world)
    found += [f"router: record {request_id}" for request_id in router.records]
    found += [f"router: {copy.copy_id}" for copy in router.copies]
    if router.num_waiting:
        found.append(f"router: {router.num_waiting} waiting")
    for view in router.fleet:
        if view.prefill_tokens or view.decode_blocks:
            found.append(f"router: account of {view.info.worker_id} is not empty")
    return found


def _of_worker(worker: SimWorker) -> list[str]:
    node, pool = worker.node, worker.node.context.memory.pool
    counts = {
        "used blocks": pool.num_used,
        "quarantined blocks": pool.num_quarantined,
        "source jobs": len(node.source.jobs),
        "source leases": len(node.source.leases),
        "reservations": len(node.destination.incoming),
        "destination leases": len(node.destination.leases),
        "sequences": len(node.decode.sequences()),
        "unacknowledged ends": len(node.decode.ended),
        "waiting": len(node.queue.waiting),
        "running": len(node.queue.running),
        "published entries": len(node.directory),
        "copies between tiers": len(node.tiers.swaps),
        "tier loads": len(node.tiers.loads),
        "local prefills": node.local.num_open,
        "data plane orders": sum(worker.plane.outstanding.values()),
    }
    return [f"{worker.worker_id}: {count} {what}" for what, count in counts.items() if count]
