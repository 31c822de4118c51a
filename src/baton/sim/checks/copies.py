"""A source copy goes only after its publication, or after everything that reads it has ended."""

from collections.abc import Sequence

from baton.core.effects import Effect
from baton.core.events import Event
from baton.core.manifest import CacheEntry
from baton.nodes.source_job import SourceJob
from baton.protocol.directory import PublishOutcome
from baton.protocol.source_copy import CopyState
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class CopiesOutliveTransfers(Observer):
    """No source copy is freed before an acknowledgement or a fenced abort."""

    name = "copies-outlive-transfers"

    def __init__(self) -> None:
        self._published: set[tuple[str, int]] = set()
        self._jobs: dict[tuple[str, int], dict[str, SourceJob]] = {}

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """This reservation is published: its source copy may go."""
        if outcome is PublishOutcome.PUBLISHED:
            self._published.add((entry.transfer_id, entry.reservation_id))

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Judge every job that is gone since the last event."""
        life = (worker.worker_id, worker.epoch)
        known, now = self._jobs.get(life, {}), worker.node.source.jobs
        for transfer_id, job in known.items():
            if now.get(transfer_id) is not job:
                self._judge(worker, job)
        if known.keys() != now.keys():
            self._jobs[life] = dict(now)

    def _judge(self, worker: SimWorker, job: SourceJob) -> None:
        fence, transfer = job.fence, job.transfer
        if transfer is None:
            return
        if transfer.state is CopyState.RELEASED:
            if (fence.transfer_id, fence.reservation_id) not in self._published:
                self.fail(f"{fence.transfer_id} released its copy and was never published")
        elif transfer.state is not CopyState.FREED:
            self.fail(f"{fence.transfer_id} left in state {transfer.state}")
        elif worker.plane.outstanding[fence.reservation_id]:
            self.fail(f"{fence.transfer_id} freed its copy while the data plane reads it")
        batch = worker.node.queue.batch
        if batch and any(
            f"{i.request_id}.{i.generation}" == fence.transfer_id for i in batch.items
        ):
            self.fail(f"{fence.transfer_id} freed its copy while a batch writes it")
