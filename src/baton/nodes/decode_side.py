"""Decoding published entries: one owner of each stream, from the first token to the last."""

from baton.core.effects import DigestKV
from baton.core.events import KVDigested
from baton.core.finish import finish_reason
from baton.core.ids import Fence
from baton.core.messages import Aborted, Done, Published, Resync, TokenRow, TokenRows
from baton.core.request import Token
from baton.core.work import Sampled
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.local_side import LocalSide
from baton.nodes.sequence import Sequence
from baton.protocol.destination import DestinationTransfer
from baton.protocol.directory import Directory

MAX_DONE_RETRIES = 20


class _Ended:
    """A finished sequence whose end the router has not acknowledged."""

    def __init__(self, done: Done, outputs: list[Token], next_retry_us: int) -> None:
        self.done = done
        self.outputs = outputs
        self.next_retry_us = next_retry_us
        self.retries = 0


class DecodeSide:
    """Admits only what the directory has published, and ends each sequence exactly once."""

    def __init__(
        self,
        context: WorkerContext,
        queue: EngineQueue,
        directory: Directory,
        local: LocalSide,
    ) -> None:
        self._context = context
        self._queue = queue
        self._directory = directory
        self._local = local
        self.live: dict[str, Sequence] = {}
        self._held: dict[str, tuple[Sequence, str]] = {}
        """Finished, and held back until their whole static batch has finished."""
        self._leaving: dict[str, tuple[Sequence, str]] = {}
        self._digesting: dict[str, tuple[Sequence, str]] = {}
        self._digest_asked_us: dict[str, int] = {}
        self.ended: dict[str, _Ended] = {}
        self._rows: list[TokenRow] = []

    def admit(self, transfer: DestinationTransfer) -> None:
        """Start decoding a published transfer; the first token came with its manifest."""
        fence, manifest = transfer.fence, transfer.manifest
        entry = self._directory.lookup(fence.request_id, fence.generation)
        assert entry is not None and manifest is not None, "decode reads only published entries"
        sequence = self._local.take(fence.transfer_id)
        if sequence is None:
            request = transfer.request
            outputs = [Token(index=i, token_id=t) for i, t in enumerate(transfer.output_token_ids)]
            sequence = Sequence(
                request=request,
                fence=fence,
                outputs=outputs,
                hashes=self._context.memory.hashes(request, request.prompt_token_ids),
            )
            sequence.block_table = list(entry.block_ids)
        sequence.num_computed = entry.num_tokens
        sequence.num_cached_tokens = manifest.num_cached_tokens
        memory = self._context.memory
        memory.insert(sequence.block_table, sequence.hashes, len(sequence.hashes))
        self.live[sequence.key] = sequence
        self._queue.add_decode(sequence)
        self._context.trace("admitted", fence, num_tokens=entry.num_tokens)
        assert manifest.first_token is not None, "a handoff is validated with its first token"
        self._take(sequence, manifest.first_token)

    def readmit(self, sequence: Sequence) -> bool:
        """Blocks for a preempted sequence that recomputes its rows here."""
        if sequence.block_table:
            return True
        memory = self._context.memory
        reusable = (len(sequence.tokens) - 1) // self._context.layout.block_size
        table = memory.match(sequence.hashes, reusable)
        cached = len(table) * self._context.layout.block_size
        if not memory.allocate(table, len(sequence.tokens) + 1):
            memory.free(table)
            return False
        sequence.block_table = table
        sequence.num_computed = cached
        return True

    def on_computed(self, sequence: Sequence, sampled: Sampled | None) -> None:
        """A batch with this sequence is over; `sampled` is its next token, if one was drawn."""
        if sampled is None:
            return
        if sequence.key not in self._queue.running:  # it was recomputing after a preemption
            self._queue.add_decode(sequence)
        self._take(
            sequence,
            Token(
                index=sequence.num_generated,
                token_id=sampled.token_id,
                logprob=sampled.logprob,
                top_logprobs=sampled.top_logprobs,
                logits_digest=sampled.logits_digest,
            ),
        )

    def _take(self, sequence: Sequence, token: Token) -> None:
        sequence.append(token)
        fence = sequence.fence
        self._rows.append(
            TokenRow(request_id=fence.request_id, generation=fence.generation, token=token)
        )
        reason = finish_reason(sequence.request, sequence.outputs, self._context.model)
        if reason and self._queue.policy.releases_together:
            del self.live[sequence.key]
            self._queue.remove(sequence)
            self._held[sequence.key] = (sequence, reason)
        elif reason:
            self._end(sequence, reason)

    def release_held(self) -> None:
        """Let a finished batch go once nobody of it is left in the engine's queue."""
        if self._held and not self._queue.has_started:
            for key in list(self._held):
                self._end_held(key)

    def _end_held(self, key: str) -> None:
        sequence, reason = self._held.pop(key)
        self.live[key] = sequence
        self._end(sequence, reason)

    def flush(self) -> None:
        """Send the tokens of this step in one message, before anything said about their end."""
        if self._rows:
            self._context.send(ROUTER, TokenRows(rows=tuple(self._rows)))
            self._rows = []

    # -- end -----------------------------------------------------------------------------------

    def on_cancel(self, fence: Fence, reason: str) -> bool:
        """End a live sequence early; False when it is not live here."""
        sequence = self.live.get(fence.transfer_id)
        if sequence is not None and fence.reservation_id not in (0, sequence.fence.reservation_id):
            return True  # another reservation of this generation: there is none of it here
        if sequence is not None:
            self._end(sequence, "stop" if reason == "stop" else "cancelled")
        elif fence.transfer_id in self._held:
            self._end_held(fence.transfer_id)
        return sequence is not None or self._is_ending(fence.transfer_id)

    def sequences(self) -> list[Sequence]:
        """Every sequence that may hold blocks here: live, leaving the engine, or being digested."""
        ending = [*self._held.values(), *self._leaving.values(), *self._digesting.values()]
        return [*self.live.values(), *(sequence for sequence, _ in ending)]

    @property
    def digest_us(self) -> int:
        """How long the oldest digest has been asked for; 0 while none is."""
        oldest_us = min(self._digest_asked_us.values(), default=self._context.now_us)
        return self._context.now_us - oldest_us

    def knows(self, key: str) -> bool:
        """True when this generation was published here and its end is not acknowledged."""
        return key in self.live or self._is_ending(key)

    def _is_ending(self, key: str) -> bool:
        held = key in self._held or key in self._leaving or key in self._digesting
        return held or key in self.ended

    def _end(self, sequence: Sequence, reason: str) -> None:
        sequence.ended = reason
        del self.live[sequence.key]
        if self._queue.remove(sequence):
            self._leave(sequence, reason)
        else:
            self._leaving[sequence.key] = (sequence, reason)

    def on_batch_end(self, sequence: Sequence) -> None:
        """A sequence that ended during the batch is out of the engine now."""
        left = self._leaving.pop(sequence.key, None)
        if left is not None:
            self._leave(*left)

    def _leave(self, sequence: Sequence, reason: str) -> None:
        if sequence.request.verify and sequence.block_table:
            self._digesting[sequence.key] = (sequence, reason)
            self._digest_asked_us[sequence.key] = self._context.now_us
            rows = min(sequence.num_computed, len(sequence.tokens) - 1)
            self._context.emit(
                DigestKV(
                    request_id=sequence.request.request_id,
                    generation=sequence.fence.generation,
                    block_ids=tuple(sequence.block_table),
                    num_tokens=rows,
                )
            )
            return
        self._close(sequence, reason, "")

    def on_kv_digested(self, event: KVDigested) -> None:
        """The digest of an ended sequence's rows is known; its blocks may go."""
        key = f"{event.request_id}.{event.generation}"
        sequence, reason = self._digesting.pop(key)
        del self._digest_asked_us[key]
        self._close(sequence, reason, event.kv_digest)

    def _close(self, sequence: Sequence, reason: str, kv_digest: str) -> None:
        context, fence = self._context, sequence.fence
        if context.cache.milestone.decode_keeps_answers:
            self._name_generated(sequence)
        context.memory.free(sequence.block_table)
        sequence.block_table = []
        self._directory.unpublish(fence.request_id, fence.generation)
        self.flush()
        context.trace("finished", fence, reason=reason, num_tokens=sequence.num_generated)
        done = Done(fence=fence, finish_reason=reason, usage=sequence.usage(), kv_digest=kv_digest)
        retry_us = context.now_us + context.transfer.retry_ms * 1000
        self.ended[sequence.key] = _Ended(done, sequence.outputs, retry_us)
        context.send(ROUTER, done)

    def _name_generated(self, sequence: Sequence) -> None:
        memory = self._context.memory
        computed = sequence.tokens[: sequence.num_computed]
        hashes = memory.hashes(sequence.request, computed, sequence.hashes)
        memory.insert(sequence.block_table, hashes, len(hashes))

    def fail(self, sequence: Sequence, reason: str) -> None:
        """The engine could not compute a live sequence: free it and say so."""
        del self.live[sequence.key]
        self._queue.remove(sequence)
        fence = sequence.fence
        self._context.memory.free(sequence.block_table)
        sequence.block_table = []
        self._directory.unpublish(fence.request_id, fence.generation)
        self.flush()
        self._context.send(ROUTER, Aborted(fence=fence, reason=reason))

    # -- repair --------------------------------------------------------------------------------

    def on_resync(self, message: Resync) -> None:
        """Say again that this is published, the tokens from an index on, and the end."""
        key, fence = message.fence.transfer_id, message.fence
        ended = self.ended.get(key)
        sequence = self._held[key][0] if key in self._held else self.live.get(key)
        if ended is not None:
            outputs, cached = ended.outputs, ended.done.usage.cached_tokens
        elif sequence is not None:
            outputs, cached = sequence.outputs, sequence.num_cached_tokens
        elif self._is_ending(key):
            return
        else:
            self._context.send(ROUTER, Aborted(fence=fence, reason="unknown_sequence"))
            return
        self.flush()
        self._context.send(ROUTER, Published(fence=fence, cached_tokens=cached))
        rows = tuple(
            TokenRow(request_id=fence.request_id, generation=fence.generation, token=token)
            for token in outputs[message.next_index :]
        )
        if rows:
            self._context.send(ROUTER, TokenRows(rows=rows))
        if ended is not None:
            self._context.send(ROUTER, ended.done)

    def on_done_ack(self, fence: Fence) -> None:
        """The router has the end: nothing of this sequence needs to be kept."""
        self.ended.pop(fence.transfer_id, None)

    def on_tick(self) -> None:
        """Repeat unacknowledged ends, a bounded number of times."""
        now_us, retry_us = self._context.now_us, self._context.transfer.retry_ms * 1000
        for key, ended in list(self.ended.items()):
            if now_us < ended.next_retry_us:
                continue
            ended.retries += 1
            ended.next_retry_us = now_us + retry_us
            if ended.retries > MAX_DONE_RETRIES:
                del self.ended[key]
            else:
                self._context.send(ROUTER, ended.done)
