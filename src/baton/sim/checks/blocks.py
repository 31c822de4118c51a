"""Every block is accounted for, and every reference belongs to somebody alive."""

from collections import Counter
from collections.abc import Sequence

from baton.core.effects import Effect
from baton.core.events import Event
from baton.protocol.transfer import TransferState
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class BlocksAddUp(Observer):
    """free + used + cached + quarantined = total, and the four are disjoint."""

    name = "blocks-add-up"

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Count the blocks one by one."""
        pool = worker.node.context.memory.pool
        kinds = pool.kinds()
        for block, claims in enumerate(kinds):
            if len(claims) != 1:
                self.fail(f"{worker.worker_id}: block {block} is {claims or 'lost'}")
        counts = Counter(claims[0] for claims in kinds)
        claimed = {
            "free": pool.num_free,
            "used": pool.num_used,
            "cached": pool.num_cached,
            "quarantined": pool.num_quarantined,
        }
        if dict(counts) != {kind: count for kind, count in claimed.items() if count}:
            self.fail(f"{worker.worker_id} counts {dict(counts)} and claims {claimed}")


class BlocksHaveOwners(Observer):
    """Each reference is held by a job, a reservation or a sequence; nothing leaks, ever."""

    name = "blocks-have-owners"

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Compare reference counts with the block tables of every owner."""
        node, pool = worker.node, worker.node.context.memory.pool
        held: Counter[int] = Counter()
        set_aside: set[int] = set()
        for job in node.source.jobs.values():
            held.update(job.sequence.block_table)
        for incoming in node.destination.incoming.values():
            transfer = incoming.transfer
            if transfer.state is TransferState.ABORTING:
                set_aside.update(transfer.grant.block_ids)
            else:
                held.update(transfer.block_table)
        for sequence in node.decode.sequences():
            held.update(sequence.block_table)
        held.update(node.tiers.held_blocks())
        for block in range(pool.num_blocks):
            if pool.num_references(block) != held[block]:
                self.fail(
                    f"{worker.worker_id}: block {block} has {pool.num_references(block)} "
                    f"references, its owners hold {held[block]}"
                )
            if pool.is_quarantined(block) != (block in set_aside):
                self.fail(f"{worker.worker_id}: block {block} is in quarantine for nobody")
