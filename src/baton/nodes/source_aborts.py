"""How a source ends a handoff without publication: fence, stop, wait for quiet, let go."""

from baton.core.effects import CancelIo
from baton.core.ids import Fence
from baton.core.messages import SourceFailed, TransferQuiesced
from baton.nodes.context import WorkerContext
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.source_job import SourceJob
from baton.nodes.source_jobs import SourceJobs
from baton.protocol.directory import Directory
from baton.protocol.source_copy import CopyState


class SourceAborts:
    """Blocks stay pinned until no I/O and no compute touches them; then the peer is told, once."""

    def __init__(
        self, context: WorkerContext, queue: EngineQueue, jobs: SourceJobs, fenced: Directory
    ) -> None:
        self._context = context
        self._queue = queue
        self._jobs = jobs
        self._fenced = fenced

    def on_abort(self, fence: Fence, reason: str) -> None:
        """Stop and quiesce; what is not known here is quiet already and stays fenced."""
        job = self._jobs.by_transfer.get(fence.transfer_id)
        if job is not None and job.fence != fence:
            self._context.counters["stale_messages"] += 1
            return
        if job is None:
            self._fenced.fence(fence.request_id, fence.generation + 1)
            self._context.send(fence.destination_id, TransferQuiesced(fence=fence))
            return
        self.abort(job, reason)

    def on_cancel(self, fence: Fence, reason: str) -> None:
        """The router gave the request up; the destination learns it by TransferQuiesced."""
        job = self._jobs.by_transfer.get(fence.transfer_id)
        if job is not None and fence.reservation_id not in (0, job.fence.reservation_id):
            self._context.counters["stale_messages"] += 1
            return
        self._fenced.fence(fence.request_id, fence.generation + 1)
        if job is not None:
            self.abort(job, reason)

    def on_peer_lost(self, worker_id: str, epoch: int) -> None:
        """A destination died: its handoffs cannot be published there any more."""
        for job in list(self._jobs.by_transfer.values()):
            fence = job.fence
            if (fence.destination_id, fence.destination_epoch) == (worker_id, epoch):
                self.abort(job, "destination_lost")

    def on_revoked(self, route_epoch: int) -> None:
        """What was authorized below that route epoch may not go on."""
        for job in list(self._jobs.by_transfer.values()):
            if job.grant.route_epoch < route_epoch and not job.is_aborting:
                self.fail(job, "routes_revoked")

    def on_leases_expired(self) -> None:
        """A destination that was silent for a whole lease is not waited for."""
        for transfer_id in self._jobs.leases.pop_expired(self._context.now_us):
            job = self._jobs.by_transfer[transfer_id]
            if not job.is_aborting:
                self._context.counters["expired_leases"] += 1
                self.fail(job, "source_lease_expired")

    def fail(self, job: SourceJob, reason: str) -> None:
        """This side gives up: say why, then abort."""
        self._context.send(job.fence.destination_id, SourceFailed(fence=job.fence, reason=reason))
        self.abort(job, reason)

    def abort(self, job: SourceJob, reason: str) -> None:
        """Stop sending and computing; the end comes when everything is quiet.

        A repeated prefill of this generation must not start it again: its capability is spent.
        """
        self._fenced.fence(job.fence.request_id, job.fence.generation + 1)
        if job.transfer is None:  # still queued: nothing was allocated
            self._queue.remove(job.sequence)
            self._end(job)
            return
        if job.transfer.state is CopyState.FENCING:
            return
        self._queue.remove(job.sequence)
        job.transfer.abort(reason)
        self._context.trace("source_aborting", job.fence, reason=reason)
        self._context.emit(CancelIo(reservation_id=job.fence.reservation_id))

    def on_io_quiesced(self, reservation_id: int) -> bool:
        """No local I/O of that reservation runs any more. False when it is not this side's."""
        job = self._jobs.by_reservation.get(reservation_id)
        if job is None:
            return False
        job.io_quiesced = True
        self.try_finish(job)
        return True

    def try_finish(self, job: SourceJob) -> None:
        """End an abort if neither I/O nor compute runs any more."""
        if job.io_quiesced and not job.sequence.in_batch:
            assert job.transfer is not None
            job.transfer.finish_abort()
            self._end(job)

    def _end(self, job: SourceJob) -> None:
        fence = job.fence
        self._context.counters["source_aborts"] += 1
        if self._context.is_live_peer(fence.destination_id, fence.destination_epoch):
            self._context.send(fence.destination_id, TransferQuiesced(fence=fence))
        self._jobs.forget(job)
