"""The right to a destination's memory: spent here, presented there, answered before a byte."""

from baton.core.capability import Region, abi_digest, regions_of
from baton.core.ids import Direction
from baton.core.messages import Authorized, Prefill, Present
from baton.core.reblock import destination_layout
from baton.nodes.context import WorkerContext
from baton.nodes.source_job import SourceJob
from baton.nodes.source_jobs import SourceJobs
from baton.protocol.capability import Access, CapabilityDenial


class SourceRights:
    """Presents at once when a prefill is accepted, so that the answer comes during compute."""

    def __init__(self, context: WorkerContext, jobs: SourceJobs) -> None:
        self._context = context
        self._jobs = jobs

    def denial(self, message: Prefill) -> CapabilityDenial | None:
        """Spend the capability of a prefill that is acceptable otherwise, or say what is wrong."""
        context = self._context
        if not message.grant.num_remote_blocks:
            return None
        if message.capability is None:
            return context.deny(CapabilityDenial.MISSING)
        access = self._access(message)
        return context.deny(context.gate.admit(message.capability, access, context.now_us))

    def _access(self, message: Prefill) -> Access:
        """A push writes the granted blocks; a pull also opens this side's own pool to the reader.

        Which of its blocks will hold the prompt is decided when there is room to compute it.
        """
        context, grant, fence = self._context, message.grant, message.fence
        layout = destination_layout(grant, context.layout)
        regions = regions_of(fence.destination_id, fence.destination_epoch, grant.block_ids)
        if grant.direction is Direction.PULL:
            regions += (
                Region(
                    worker_id=context.worker_id,
                    worker_epoch=context.epoch,
                    block_start=0,
                    num_blocks=context.memory.pool.num_blocks,
                ),
            )
        return Access(
            fence=fence,
            route_epoch=grant.route_epoch,
            direction=grant.direction,
            regions=regions,
            nbytes=grant.num_remote_blocks * layout.bytes_per_block,
            abi_digest=abi_digest(context.model.identity, layout, context.layout),
        )

    def present(self, job: SourceJob) -> None:
        """Ask the destination to let this transfer in; nothing to ask for where nothing moves."""
        if job.is_authorized or job.is_aborting:
            return
        context = self._context
        assert job.capability is not None
        job.next_present_us = context.now_us + context.transfer.retry_ms * 1000
        message = Present(fence=job.fence, capability=job.capability)
        context.send(job.fence.destination_id, message)

    def on_authorized(self, message: Authorized) -> SourceJob | None:
        """The destination spent it too. The job, if bytes may go only since now."""
        job = self._jobs.current(message.fence)
        if job is None:
            return None
        self._jobs.extend_lease(job)
        if job.is_authorized:
            self._context.counters["duplicate_messages"] += 1
            return None
        job.is_authorized = True
        self._context.trace("authorized", job.fence)
        return job

    def repeat(self, job: SourceJob) -> None:
        """Say again what may have been lost."""
        if self._context.now_us >= job.next_present_us:
            self.present(job)
