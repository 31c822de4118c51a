"""The open jobs of a source: by transfer, by reservation, each under a lease."""

from baton.core.ids import Fence
from baton.nodes.context import WorkerContext
from baton.nodes.source_job import SourceJob
from baton.protocol.lease import LeaseTable


class SourceJobs:
    """Every job that holds anything. A fence that is not a job's own is stale, and counted."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.by_transfer: dict[str, SourceJob] = {}
        self.by_reservation: dict[int, SourceJob] = {}
        self.leases: LeaseTable[str] = LeaseTable()

    def open(self, job: SourceJob) -> None:
        """Hold a new job under a lease on its destination."""
        self.by_transfer[job.fence.transfer_id] = job
        self.by_reservation[job.fence.reservation_id] = job
        self.extend_lease(job)

    def current(self, fence: Fence) -> SourceJob | None:
        """The job of exactly this fence; anything else is stale and counted."""
        job = self.by_transfer.get(fence.transfer_id)
        if job is None or job.fence != fence:
            self._context.counters["stale_messages"] += 1
            return None
        return job

    def extend_lease(self, job: SourceJob) -> None:
        """The destination has shown that it is alive."""
        lease_us = self._context.transfer.lease_ms * 1000
        self.leases.set(job.fence.transfer_id, self._context.now_us + lease_us)

    def forget(self, job: SourceJob) -> None:
        """Give up the blocks and everything that is known of the job."""
        self._context.memory.free(job.sequence.block_table)
        job.sequence.block_table = []
        del self.by_transfer[job.fence.transfer_id]
        del self.by_reservation[job.fence.reservation_id]
        self.leases.drop(job.fence.transfer_id)
