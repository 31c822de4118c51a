"""The prefill half of a worker: compute, stream, seal, hold the copy, release it on proof."""

from collections.abc import Callable

from baton.core.effects import DigestChunk, MoveChunk
from baton.core.events import ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence, Schedule
from baton.core.messages import (
    Accepted,
    Authorized,
    ChunksReady,
    CreditReturn,
    Denied,
    Prefill,
    Seal,
)
from baton.core.request import Token
from baton.core.work import Sampled
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.grants import granted_to_other
from baton.nodes.sequence import Sequence
from baton.nodes.source_aborts import SourceAborts
from baton.nodes.source_copies import SourceCopies
from baton.nodes.source_job import SourceJob
from baton.nodes.source_jobs import SourceJobs
from baton.nodes.source_rights import SourceRights
from baton.protocol.capability import CapabilityDenial
from baton.protocol.directory import Directory
from baton.protocol.source import SourceTransfer
from baton.protocol.source_copy import CopyState


class SourceSide:
    """Owns every job by transfer id. `fenced` refuses generations that were aborted here."""

    def __init__(
        self,
        context: WorkerContext,
        queue: EngineQueue,
        fenced: Directory,
        load: Callable[[Sequence], bool],
    ) -> None:
        self._context = context
        self._queue = queue
        self._fenced = fenced
        self._released = Directory()
        self._open = SourceJobs(context)
        self.jobs = self._open.by_transfer
        self.leases = self._open.leases
        self.aborts = SourceAborts(context, queue, self._open, fenced)
        self._rights = SourceRights(context, self._open)
        self.copies = SourceCopies(context, self._open, load, self._go_on, self.aborts.fail)

    # -- from the router -----------------------------------------------------------------------

    def on_prefill(self, message: Prefill) -> None:
        """Accept a prefill under a destination's grant, or say why not."""
        fence, context = message.fence, self._context
        known = self.jobs.get(fence.transfer_id)
        if known is not None:
            context.counters["duplicate_messages"] += 1
            if known.fence == fence:
                context.send(ROUTER, Accepted(fence=fence))
            return
        if self._released.is_fenced(fence.request_id, fence.generation):
            context.counters["duplicate_messages"] += 1  # done and handed over long ago
            context.send(ROUTER, Accepted(fence=fence))
            return
        reason = self._refusal(message)
        if reason:
            context.send(ROUTER, Denied(fence=fence, reason=reason, transient=False))
            return
        denial = self._rights.denial(message)
        if denial is not None:
            transient = denial in (CapabilityDenial.EXPIRED, CapabilityDenial.LEDGER_FULL)
            reason = f"capability_{denial}"
            context.send(ROUTER, Denied(fence=fence, reason=reason, transient=transient))
            return
        self._accept(message)

    def _accept(self, message: Prefill) -> None:
        fence, context = message.fence, self._context
        outputs = [Token(index=i, token_id=t) for i, t in enumerate(message.output_token_ids)]
        sequence = Sequence(
            request=message.request,
            fence=fence,
            outputs=outputs,
            hashes=context.memory.hashes(message.request, message.request.prompt_token_ids),
        )
        sequence.streams_layers = message.grant.schedule is Schedule.LAYER
        job = SourceJob(sequence, message)
        if message.grant.is_copy and not self.copies.begin(job):
            context.send(ROUTER, Denied(fence=fence, reason="prefix_absent", transient=False))
            return
        self._open.open(job)
        context.send(ROUTER, Accepted(fence=fence))
        self._rights.present(job)
        if message.grant.is_copy:
            self._go_on(job)
            return
        self._queue.add_prefill(sequence)
        context.trace("prefill_queued", fence, num_tokens=len(sequence.tokens))

    def _go_on(self, job: SourceJob) -> None:
        """Everything of a copy is there to be sent, once it has been brought up."""
        if job.transfer is not None:
            self._send_ready(job)
            self._try_seal(job)

    def _refusal(self, message: Prefill) -> str:
        fence = message.fence
        if self._fenced.is_fenced(fence.request_id, fence.generation):
            return "stale_generation"
        if not self._context.is_live_peer(fence.destination_id, fence.destination_epoch):
            return "destination_unknown"
        if message.grant.fence != fence:
            return "grant_mismatch"
        num_tokens = message.request.num_prompt_tokens + len(message.output_token_ids)
        if message.grant.num_tokens != num_tokens:
            return "grant_mismatch"
        if self._context.layout.num_blocks(num_tokens) > self._context.memory.pool.num_blocks:
            return "prompt_exceeds_pool"
        peer = self._context.peers[fence.destination_id]
        if granted_to_other(message.grant, self._context.layout, peer):
            return "grant_mismatch"
        if fence.reservation_id in self._open.by_reservation:
            return "reservation_mismatch"
        return ""

    # -- compute -------------------------------------------------------------------------------

    def admit(self, sequence: Sequence) -> bool:
        """Give a queued prompt its blocks, reusing the visible prefix; open its transfer."""
        job = self.jobs[sequence.key]
        if job.transfer is not None:
            return True
        memory, layout = self._context.memory, self._context.layout
        reusable = (len(sequence.tokens) - 1) // layout.block_size
        table = memory.match(sequence.hashes, reusable)
        cached = len(table) * layout.block_size
        if not memory.allocate(table, len(sequence.tokens)):
            memory.free(table)
            return False
        memory.count_prompt(min(reusable, len(sequence.hashes)), cached // layout.block_size)
        sequence.block_table = table
        sequence.num_computed = sequence.num_cached_tokens = cached
        job.transfer = SourceTransfer(job.grant, layout, tuple(table), cached)
        self._context.trace("prefill_started", job.fence, cached_tokens=cached)
        self._send_ready(job)
        return True

    def on_layer_ready(self, layer: int, members: dict[str, int]) -> None:
        """One layer of the running batch is final up to the given position of each member."""
        for key, end in members.items():
            job = self.jobs.get(key)
            if job is None or job.transfer is None or job.transfer.state is not CopyState.COMPUTING:
                continue
            job.transfer.mark_ready(layer, end)
            self._send_ready(job)
            if end == len(job.sequence.tokens):
                self._context.trace("layer_ready", job.fence, layer=layer)
                if layer == self._context.layout.num_layers - 1:
                    self._context.trace("last_layer_ready", job.fence)

    def on_computed(self, sequence: Sequence, sampled: Sampled | None) -> None:
        """A batch that held this sequence is over; `sampled` is there after the last row."""
        job = self.jobs.get(sequence.key)
        if job is None or job.transfer is None:
            return
        if job.transfer.state is CopyState.FENCING:
            self.aborts.try_finish(job)
            return
        if sampled is None:
            for layer in range(self._context.layout.num_layers):
                job.transfer.mark_ready(layer, sequence.num_computed)
        else:
            self._queue.remove(sequence)
            job.first_token = Token(
                index=sequence.num_generated,
                token_id=sampled.token_id,
                logprob=sampled.logprob,
                top_logprobs=sampled.top_logprobs,
                logits_digest=sampled.logits_digest,
            )
            self._context.memory.insert(sequence.block_table, sequence.hashes, len(sequence.hashes))
            job.transfer.mark_complete()
            if not sequence.streams_layers:
                self._context.trace("last_layer_ready", job.fence)
            self._context.trace("prefill_done", job.fence, num_tokens=len(sequence.tokens))
        self._send_ready(job)
        self._try_seal(job)

    # -- transfer ------------------------------------------------------------------------------

    def _send_ready(self, job: SourceJob) -> None:
        transfer = job.transfer
        assert transfer is not None
        if not job.is_authorized:
            return
        ready = transfer.take_ready()
        if not ready:
            return
        fence, push = job.fence, job.grant.direction is Direction.PUSH
        for spec in ready:
            if push:
                self._context.emit(
                    MoveChunk(
                        peer_id=fence.destination_id,
                        peer_epoch=fence.destination_epoch,
                        reservation_id=fence.reservation_id,
                        chunk=spec,
                        write=True,
                        local_blocks=transfer.blocks_of(spec),
                        remote_blocks=transfer.remote_blocks_of(spec),
                        reblock=transfer.reblock_of(spec),
                    )
                )
            else:  # readable for the peer only once it is settled and summed
                self._context.emit(
                    DigestChunk(
                        reservation_id=fence.reservation_id,
                        chunk=spec,
                        local_blocks=transfer.blocks_of(spec),
                        inward=False,
                        reblock=transfer.reblock_of(spec),
                    )
                )

    def on_moved(self, event: ChunkMoved) -> bool:
        """A push ended. False when the reservation is not one of this side's."""
        job = self._open.by_reservation.get(event.reservation_id)
        if job is None or job.transfer is None:
            return False
        self._context.trace_moved(job.fence, event)
        self._take_checksum(job, event.chunk_id, event.checksum, event.error)
        return True

    def on_digested(self, event: ChunkDigested) -> bool:
        """A pull chunk was summed in this side's memory. False when it is not this side's."""
        job = self._open.by_reservation.get(event.reservation_id)
        if job is None or job.transfer is None:
            return False
        live = job.transfer.state is CopyState.COMPUTING and not event.error
        if live and job.grant.direction is Direction.PULL:
            self._offer(job, (event.chunk_id,))
        self._take_checksum(job, event.chunk_id, event.checksum, event.error)
        return True

    def _offer(self, job: SourceJob, chunk_ids: tuple[int, ...]) -> None:
        """Pull: these chunks are settled and may be read."""
        assert job.transfer is not None
        self._context.send(
            job.fence.destination_id,
            ChunksReady(
                fence=job.fence,
                chunk_ids=chunk_ids,
                source_block_ids=job.transfer.local_blocks,
            ),
        )

    def _take_checksum(self, job: SourceJob, chunk_id: int, checksum: int, error: str) -> None:
        transfer = job.transfer
        assert transfer is not None
        if transfer.state is CopyState.FENCING:
            return
        if error:
            self._context.counters["transfer_errors"] += 1
            self.aborts.fail(job, f"transfer_failed: {error}")
            return
        transfer.summed(chunk_id, checksum)
        self._try_seal(job)

    def on_authorized(self, message: Authorized) -> None:
        """The destination lets this transfer in: what is ready may go."""
        job = self._rights.on_authorized(message)
        if job is not None and job.transfer is not None and not job.is_aborting:
            self._send_ready(job)

    def on_credit(self, message: CreditReturn) -> None:
        """The destination sees these chunks: credit is free, more may go."""
        job = self._open.current(message.fence)
        if job is None or job.transfer is None or job.transfer.state is CopyState.FENCING:
            return
        self._open.extend_lease(job)
        for chunk_id in message.chunk_ids:
            job.transfer.visible(chunk_id)  # a repeated return has no effect
        self._send_ready(job)

    def _try_seal(self, job: SourceJob) -> None:
        transfer = job.transfer
        assert transfer is not None
        is_drawn = job.first_token is not None or job.grant.is_copy
        if not is_drawn or not transfer.can_seal or transfer.manifest is not None:
            return
        transfer.seal(
            tuple(job.sequence.tokens),
            self._context.model.identity,
            job.first_token,
            job.sequence.num_cached_tokens,
        )
        self._context.trace("sealed", job.fence)
        self._send_seal(job)

    def _send_seal(self, job: SourceJob, *, again: bool = False) -> None:
        transfer = job.transfer
        assert transfer is not None and transfer.manifest is not None
        transfer.next_retry_us = self._context.now_us + self._context.transfer.retry_ms * 1000
        if again and job.grant.direction is Direction.PULL:
            self._offer(job, tuple(spec.chunk_id for spec in transfer.plan))
        self._context.send(
            job.fence.destination_id, Seal(fence=job.fence, manifest=transfer.manifest)
        )

    # -- end -----------------------------------------------------------------------------------

    def on_release(self, fence: Fence) -> None:
        """Published under this generation: the copy becomes history."""
        job = self._open.current(fence)
        if job is None or job.transfer is None or job.transfer.state is not CopyState.HELD:
            self._context.counters["stale_messages"] += job is not None
            return
        self._released.fence(fence.request_id, fence.generation + 1)
        self._fenced.fence(fence.request_id, fence.generation + 1)
        job.transfer.release()
        self._context.trace("source_released", fence)
        self._open.forget(job)

    def fail_sequence(self, sequence: Sequence, reason: str) -> None:
        """The engine could not compute this sequence."""
        job = self.jobs.get(sequence.key)
        if job is not None:
            self.aborts.fail(job, reason)

    # -- time ----------------------------------------------------------------------------------

    def renew(self, fence: Fence) -> None:
        """The destination says this handoff is alive."""
        job = self._open.current(fence)
        if job is not None:
            self._open.extend_lease(job)

    def on_tick(self) -> None:
        """Expire leases and repeat what was not answered."""
        self.aborts.on_leases_expired()
        for job in list(self.jobs.values()):
            self._rights.repeat(job)
            transfer = job.transfer
            if transfer is None or transfer.state is not CopyState.HELD:
                continue
            if self._context.now_us >= transfer.next_retry_us:
                self._send_seal(job, again=True)
