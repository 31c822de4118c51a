"""A published entry is complete and true, and generations of a request only rise."""

import numpy as np

from baton.core.manifest import CacheEntry
from baton.protocol.directory import PublishOutcome
from baton.sim.checks.truths import Truths
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker

_NUM_OFFERED = 4


class PublishedIsTrue(Observer):
    """A published entry covers each layer and token exactly once and equals the source's rows."""

    name = "published-is-true"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """Compare every row with the truth, at the moment from which it may be read."""
        if outcome is not PublishOutcome.PUBLISHED:
            return
        key = (entry.request_id, entry.generation)
        expected = self._truths.num_tokens[key]
        if entry.num_tokens != expected:
            self.fail(f"{key} holds {entry.num_tokens} rows of {expected}")
        if len(set(entry.block_ids)) != len(entry.block_ids):
            self.fail(f"{key} names a block twice: {entry.block_ids}")
        pool = worker.node.context.memory.pool
        unheld = [block for block in entry.block_ids if not pool.num_references(block)]
        if unheld:
            self.fail(f"{key} is published in blocks that nobody holds: {unheld}")
        rows = worker.read(entry.block_ids, entry.num_tokens)
        truth = self._truths.truth(entry.request_id).rows[:, : entry.num_tokens]
        if not np.array_equal(rows, truth):
            wrong = np.argwhere(rows != truth)
            layer, position = wrong[0]
            self.fail(
                f"{key} at {worker.worker_id}: {len(wrong)} rows differ, first is layer {layer} "
                f"position {position}"
            )


class PublicationIsOnce(Observer):
    """Publishing again what was published, or what has ended since, is refused by the directory.

    It is asked each time something is published, so every state that the run brings about answers.
    """

    name = "publication-is-once"

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], list[CacheEntry]] = {}

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """Offer this entry and the last few before it again."""
        if outcome is not PublishOutcome.PUBLISHED:
            return
        kept = self._entries.setdefault((worker.worker_id, worker.epoch), [])
        kept.append(entry)
        del kept[:-_NUM_OFFERED]
        for offered in kept:
            live = worker.node.directory.lookup(offered.request_id, offered.generation)
            right = PublishOutcome.STALE if live is None else PublishOutcome.DUPLICATE
            answer = worker.publish_again(offered)
            if answer is not right:
                self.fail(f"{offered.transfer_id} is offered again: {answer}, right is {right}")


class GenerationsOnlyRise(Observer):
    """One published generation per request and worker, never decreasing, none published twice."""

    name = "generations-only-rise"

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str, int], int] = {}
        self._seen: dict[tuple[str, int], str] = {}

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """Compare with what was published before."""
        if outcome is not PublishOutcome.PUBLISHED:
            return
        key = (entry.request_id, entry.generation)
        place = f"{worker.worker_id} epoch {worker.epoch}"
        if key in self._seen:
            self.fail(f"{key} is published at {place} and was at {self._seen[key]}")
        self._seen[key] = place
        at_worker = (entry.request_id, worker.worker_id, worker.epoch)
        newest = self._newest.get(at_worker, 0)
        if entry.generation <= newest:
            self.fail(f"{key} at {place} is not newer than generation {newest}")
        self._newest[at_worker] = entry.generation
