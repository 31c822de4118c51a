"""The prefill half of a worker: compute, stream, seal, hold the copy, release it on proof."""

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.core.events import ChunkDigested, ChunkMoved
from baton.core.ids import Direction, Fence
from baton.core.messages import (
    Accepted,
    ChunksReady,
    CreditReturn,
    Denied,
    Prefill,
    Seal,
    SourceFailed,
    TransferQuiesced,
)
from baton.core.request import Token
from baton.core.work import Sampled
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.sequence import Sequence
from baton.nodes.source_job import SourceJob
from baton.protocol.directory import Directory
from baton.protocol.lease import LeaseTable
from baton.protocol.source import SourceTransfer
from baton.protocol.source_copy import CopyState


class SourceSide:
    """Owns every job by transfer id. `fenced` refuses generations that were aborted here."""

    def __init__(self, context: WorkerContext, queue: EngineQueue, fenced: Directory) -> None:
        self._context = context
        self._queue = queue
        self._fenced = fenced
        self._released = Directory()
        self.jobs: dict[str, SourceJob] = {}
        self._by_reservation: dict[int, SourceJob] = {}
        self.leases: LeaseTable[str] = LeaseTable()

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
        outputs = [Token(index=i, token_id=t) for i, t in enumerate(message.output_token_ids)]
        sequence = Sequence(
            request=message.request,
            fence=fence,
            outputs=outputs,
            hashes=context.memory.hashes(message.request, message.request.prompt_token_ids),
        )
        job = SourceJob(sequence, message)
        self.jobs[fence.transfer_id] = job
        self._by_reservation[fence.reservation_id] = job
        self._extend_lease(job)
        self._queue.add_prefill(sequence)
        context.send(ROUTER, Accepted(fence=fence))
        context.trace("prefill_queued", fence, num_tokens=len(sequence.tokens))

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
        return ""

    # -- compute -------------------------------------------------------------------------------

    def admit(self, sequence: Sequence) -> bool:
        """Give a queued prompt its blocks, reusing the visible prefix; open its transfer."""
        job = self.jobs[sequence.key]
        if job.transfer is not None:
            return True
        memory, layout = self._context.memory, self._context.layout
        reusable = (len(sequence.tokens) - 1) // layout.block_size
        table = memory.pin_prefix(sequence.hashes, reusable)
        cached = len(table) * layout.block_size
        if not memory.grow(table, len(sequence.tokens)):
            memory.release(table)
            return False
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
            last = layer == self._context.layout.num_layers - 1
            if last and end == len(job.sequence.tokens):
                self._context.trace("last_layer_ready", job.fence)

    def on_computed(self, sequence: Sequence, sampled: Sampled | None) -> None:
        """A batch that held this sequence is over; `sampled` is there after the last row."""
        job = self.jobs.get(sequence.key)
        if job is None or job.transfer is None:
            return
        if job.transfer.state is CopyState.FENCING:
            self._try_finish_abort(job)
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
            self._context.memory.name_blocks(
                sequence.block_table, sequence.hashes, len(sequence.hashes)
            )
            job.transfer.mark_complete()
            self._context.trace("prefill_done", job.fence, num_tokens=len(sequence.tokens))
        self._send_ready(job)
        self._try_seal(job)

    # -- transfer ------------------------------------------------------------------------------

    def _send_ready(self, job: SourceJob) -> None:
        transfer = job.transfer
        assert transfer is not None
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
                    )
                )
            else:  # readable for the peer only once it is settled and summed
                self._context.emit(
                    DigestChunk(
                        reservation_id=fence.reservation_id,
                        chunk=spec,
                        local_blocks=transfer.blocks_of(spec),
                        inward=False,
                    )
                )

    def on_moved(self, event: ChunkMoved) -> bool:
        """A push ended. False when the reservation is not one of this side's."""
        job = self._by_reservation.get(event.reservation_id)
        if job is None or job.transfer is None:
            return False
        self._take_checksum(job, event.chunk_id, event.checksum, event.error)
        return True

    def on_digested(self, event: ChunkDigested) -> bool:
        """A pull chunk was summed in this side's memory. False when it is not this side's."""
        job = self._by_reservation.get(event.reservation_id)
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
            self._fail(job, f"transfer_failed: {error}")
            return
        transfer.summed(chunk_id, checksum)
        self._try_seal(job)

    def on_credit(self, message: CreditReturn) -> None:
        """The destination sees these chunks: credit is free, more may go."""
        job = self._current(message.fence)
        if job is None or job.transfer is None or job.transfer.state is CopyState.FENCING:
            return
        self._extend_lease(job)
        for chunk_id in message.chunk_ids:
            job.transfer.visible(chunk_id)  # a repeated return has no effect
        self._send_ready(job)

    def _try_seal(self, job: SourceJob) -> None:
        transfer = job.transfer
        assert transfer is not None
        if job.first_token is None or not transfer.can_seal or transfer.manifest is not None:
            return
        transfer.seal(
            tuple(job.sequence.tokens),
            self._context.model.identity,
            job.first_token,
            job.sequence.num_cached_tokens,
            route_epoch=job.fence.attempt,
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
        job = self._current(fence)
        if job is None or job.transfer is None or job.transfer.state is not CopyState.HELD:
            self._context.counters["stale_messages"] += job is not None
            return
        self._released.fence(fence.request_id, fence.generation + 1)
        self._fenced.fence(fence.request_id, fence.generation + 1)
        job.transfer.release()
        self._context.trace("source_released", fence)
        self._forget(job)

    def on_abort(self, fence: Fence, reason: str) -> None:
        """Stop and quiesce; what is not known here is quiet already and stays fenced."""
        job = self.jobs.get(fence.transfer_id)
        if job is not None and job.fence != fence:
            self._context.counters["stale_messages"] += 1
            return
        self._fenced.fence(fence.request_id, fence.generation + 1)
        if job is None:
            self._context.send(fence.destination_id, TransferQuiesced(fence=fence))
            return
        self._abort(job, reason)

    def on_cancel(self, fence: Fence, reason: str) -> None:
        """The router gave the request up; the destination learns it by TransferQuiesced."""
        job = self.jobs.get(fence.transfer_id)
        if job is not None and fence.reservation_id not in (0, job.fence.reservation_id):
            self._context.counters["stale_messages"] += 1
            return
        self._fenced.fence(fence.request_id, fence.generation + 1)
        if job is not None:
            self._abort(job, reason)

    def _fail(self, job: SourceJob, reason: str) -> None:
        self._context.send(job.fence.destination_id, SourceFailed(fence=job.fence, reason=reason))
        self._abort(job, reason)

    def fail_sequence(self, sequence: Sequence, reason: str) -> None:
        """The engine could not compute this sequence."""
        job = self.jobs.get(sequence.key)
        if job is not None:
            self._fail(job, reason)

    def _abort(self, job: SourceJob, reason: str) -> None:
        if job.transfer is None:  # still queued: nothing was allocated
            self._queue.remove(job.sequence)
            self._end_abort(job)
            return
        if job.transfer.state is CopyState.FENCING:
            return
        self._queue.remove(job.sequence)
        job.transfer.abort(reason)
        self._context.trace("source_aborting", job.fence, reason=reason)
        self._context.emit(CancelIo(reservation_id=job.fence.reservation_id))

    def on_io_quiesced(self, reservation_id: int) -> bool:
        """No local I/O of that reservation runs any more. False when it is not this side's."""
        job = self._by_reservation.get(reservation_id)
        if job is None:
            return False
        job.io_quiesced = True
        self._try_finish_abort(job)
        return True

    def _try_finish_abort(self, job: SourceJob) -> None:
        if job.io_quiesced and not job.sequence.in_batch:
            assert job.transfer is not None
            job.transfer.finish_abort()
            self._end_abort(job)

    def _end_abort(self, job: SourceJob) -> None:
        fence = job.fence
        self._context.counters["source_aborts"] += 1
        if self._context.is_live_peer(fence.destination_id, fence.destination_epoch):
            self._context.send(fence.destination_id, TransferQuiesced(fence=fence))
        self._forget(job)

    def _forget(self, job: SourceJob) -> None:
        self._context.memory.release(job.sequence.block_table)
        job.sequence.block_table = []
        del self.jobs[job.fence.transfer_id]
        del self._by_reservation[job.fence.reservation_id]
        self.leases.drop(job.fence.transfer_id)

    def on_peer_lost(self, worker_id: str, epoch: int) -> None:
        """A destination died: its handoffs cannot be published there any more."""
        for job in list(self.jobs.values()):
            fence = job.fence
            if (fence.destination_id, fence.destination_epoch) == (worker_id, epoch):
                self._abort(job, "destination_lost")

    # -- time ----------------------------------------------------------------------------------

    def _current(self, fence: Fence) -> SourceJob | None:
        """The job of exactly this fence; anything else is stale and counted."""
        job = self.jobs.get(fence.transfer_id)
        if job is None or job.fence != fence:
            self._context.counters["stale_messages"] += 1
            return None
        return job

    def _extend_lease(self, job: SourceJob) -> None:
        lease_us = self._context.transfer.lease_ms * 1000
        self.leases.set(job.fence.transfer_id, self._context.now_us + lease_us)

    def renew(self, fence: Fence) -> None:
        """The destination says this handoff is alive."""
        job = self._current(fence)
        if job is not None:
            self._extend_lease(job)

    def on_tick(self) -> None:
        """Expire leases and repeat what was not answered."""
        for transfer_id in self.leases.pop_expired(self._context.now_us):
            job = self.jobs[transfer_id]
            if job.transfer is None or job.transfer.state is not CopyState.FENCING:
                self._context.counters["expired_leases"] += 1
                self._fail(job, "source_lease_expired")
        for job in list(self.jobs.values()):
            transfer = job.transfer
            if transfer is None or transfer.state is not CopyState.HELD:
                continue
            if self._context.now_us >= transfer.next_retry_us:
                self._send_seal(job, again=True)
