"""Nothing is written into a block after its abort, and history is never written again."""

from collections.abc import Sequence

from baton.core.cache import Tier
from baton.core.effects import CopyBlock
from baton.core.work import WorkItem
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class WritesAreOwned(Observer):
    """A landing chunk belongs to a reservation that still owns the blocks, aborting or not."""

    name = "writes-are-owned"

    def landed(
        self, worker: SimWorker, reservation_id: int, blocks: Sequence[int], nbytes: int
    ) -> None:
        """Compare the written blocks with what the reservation holds at this moment."""
        incoming = worker.node.destination.table.by_reservation.get(reservation_id)
        if incoming is None:
            self.fail(f"{worker.worker_id}: reservation {reservation_id:x} is over, yet written")
            return
        outside = set(blocks) - set(incoming.transfer.grant.block_ids)
        if outside:
            self.fail(f"{worker.worker_id}: blocks {sorted(outside)} were never granted")
        self._check(worker, blocks)

    def swapped(self, worker: SimWorker, order: CopyBlock) -> None:
        """What comes up is written into blocks that somebody holds and that have no name yet."""
        if order.target is Tier.MEMORY:
            self._check(worker, [order.target_slot])

    def computed(self, worker: SimWorker, item: WorkItem, layer: int) -> None:
        """The engine writes only into blocks that somebody holds and that have no name yet."""
        size = worker.layout.block_size
        self._check(worker, item.block_table[item.start // size : (item.end - 1) // size + 1])

    def _check(self, worker: SimWorker, blocks: Sequence[int]) -> None:
        pool = worker.node.context.memory.pool
        for block in blocks:
            if not pool.num_references(block) and not pool.is_quarantined(block):
                self.fail(f"{worker.worker_id}: block {block} is written and nobody holds it")
            if pool.is_named(block):
                self.fail(f"{worker.worker_id}: block {block} is named history and is written")
