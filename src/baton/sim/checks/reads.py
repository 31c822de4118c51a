"""What the engine reads: published, true, and of the reader's own tenant."""

from collections.abc import Sequence

import numpy as np

from baton.core.cache import Tier
from baton.core.effects import CopyBlock, DigestKV, Effect
from baton.core.events import Event
from baton.core.manifest import CacheEntry
from baton.core.work import Batch, WorkItem
from baton.protocol.directory import PublishOutcome
from baton.sim.checks.truths import Truths
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class DecodeReadsPublished(Observer):
    """Rows beyond the handed-over prompt are computed only where that generation is published."""

    name = "decode-reads-published"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._published: set[tuple[str, int, str, int]] = set()

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """From now on this generation may decode here."""
        if outcome is PublishOutcome.PUBLISHED:
            key = (entry.request_id, entry.generation, worker.worker_id, worker.epoch)
            self._published.add(key)

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """Judge every item of a batch before it reads anything."""
        for item in batch.items:
            rows = self._truths.num_tokens[item.request_id, item.generation]
            key = (item.request_id, item.generation, worker.worker_id, worker.epoch)
            if item.end > rows and key not in self._published:
                self.fail(f"{key} decodes position {item.end - 1} and is not published")


class ReadsAreTrue(Observer):
    """Every row that a batch attends to, or that is digested, equals the truth at that moment."""

    name = "reads-are-true"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """Compare what is read with the truth."""
        for item in batch.items:
            rows = worker.read(item.block_table, item.start)
            truth = self._truths.truth(item.request_id)
            if tuple(truth.token_ids[item.start : item.end]) != item.token_ids:
                self.fail(f"{item.request_id} computes other tokens at {item.start}")
            if not np.array_equal(rows, truth.rows[:, : item.start]):
                position = int(np.argwhere(rows != truth.rows[:, : item.start])[0][1])
                self.fail(
                    f"{worker.worker_id} reads a wrong row of {item.request_id} generation "
                    f"{item.generation} at position {position}"
                )

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """What is digested for a client must have been computed."""
        for order in effects:
            if isinstance(order, DigestKV):
                rows = worker.read(order.block_ids, order.num_tokens)
                truth = self._truths.truth(order.request_id).rows[:, : order.num_tokens]
                if not np.array_equal(rows, truth):
                    self.fail(
                        f"{worker.worker_id} digests wrong rows of {order.request_id} generation "
                        f"{order.generation}"
                    )


class TenantsAreApart(Observer):
    """No sequence reads a block that another tenant, or another salt, has written."""

    name = "tenants-are-apart"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._writers: dict[tuple[str, int, int], tuple[str, str] | None] = {}
        self._below: dict[bytes, tuple[str, str] | None] = {}

    def _domain(self, request_id: str) -> tuple[str, str]:
        request = self._truths.request(request_id)
        return request.tenant_id, request.cache_salt

    def computed(self, worker: SimWorker, item: WorkItem, layer: int) -> None:
        """The item's tenant has written these blocks."""
        size = worker.layout.block_size
        domain = self._domain(item.request_id)
        for block in item.block_table[item.start // size : (item.end - 1) // size + 1]:
            self._writers[worker.worker_id, worker.epoch, block] = domain

    def swapped(self, worker: SimWorker, order: CopyBlock) -> None:
        """What goes down and comes up again is still its writer's."""
        if order.source is Tier.MEMORY:
            key = (worker.worker_id, worker.epoch, order.source_slot)
            self._below[order.block_hash] = self._writers[key]
        elif order.target is Tier.MEMORY:
            key = (worker.worker_id, worker.epoch, order.target_slot)
            # A file that was torn as its worker died has no writer, and nobody may read it.
            self._writers[key] = self._below.get(order.block_hash)

    def landed(
        self, worker: SimWorker, reservation_id: int, blocks: Sequence[int], nbytes: int
    ) -> None:
        """The tenant of the reservation has written these blocks."""
        incoming = worker.node.destination.table.by_reservation.get(reservation_id)
        if incoming is not None:
            domain = self._domain(incoming.fence.request_id)
            for block in blocks:
                self._writers[worker.worker_id, worker.epoch, block] = domain

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """Every block that is read was written by the reader's own tenant."""
        for item in batch.items:
            domain = self._domain(item.request_id)
            for block in item.block_table[: worker.layout.num_blocks(item.start)]:
                writer = self._writers.get((worker.worker_id, worker.epoch, block))
                if writer != domain:
                    self.fail(f"{item.request_id} of {domain} reads a block of {writer}")
