"""Colocated prefill: the same transaction with source = destination and nothing to move."""

from collections.abc import Callable

from baton.core.ids import Fence
from baton.core.messages import Accepted, Denied, Prefill, Seal
from baton.core.request import Token
from baton.core.work import Sampled
from baton.nodes.context import ROUTER, WorkerContext
from baton.nodes.destination_side import DestinationSide
from baton.nodes.engine_queue import EngineQueue
from baton.nodes.sequence import Sequence
from baton.protocol.source import SourceTransfer
from baton.protocol.transfer import TransferState


class LocalSide:
    """Prompts computed straight into the blocks that were reserved for decode."""

    def __init__(
        self,
        context: WorkerContext,
        queue: EngineQueue,
        destination: Callable[[], DestinationSide],
    ) -> None:
        self._context = context
        self._queue = queue
        self._destination = destination
        self.sequences: dict[str, Sequence] = {}
        self._stopping: dict[str, Sequence] = {}

    def on_prefill(self, message: Prefill) -> None:
        """Start computing into an existing reservation."""
        fence = message.fence
        incoming = self._destination().incoming.get(fence.transfer_id)
        if fence.transfer_id in self.sequences:
            self._context.counters["duplicate_messages"] += 1
            self._context.send(ROUTER, Accepted(fence=fence))
            return
        live = incoming is not None and incoming.transfer.state is TransferState.RESERVED
        if incoming is None or incoming.fence != fence or not live:
            self._context.send(ROUTER, Denied(fence=fence, reason="not_reserved", transient=False))
            return
        transfer = incoming.transfer
        transfer.start()
        outputs = [Token(index=i, token_id=t) for i, t in enumerate(message.output_token_ids)]
        sequence = Sequence(
            request=message.request,
            fence=fence,
            outputs=outputs,
            hashes=self._context.memory.hashes(message.request, message.request.prompt_token_ids),
        )
        sequence.block_table = list(transfer.block_table)
        sequence.num_computed = sequence.num_cached_tokens = transfer.grant.token_start
        size = self._context.layout.block_size
        reusable = min(sequence.num_reusable // size, len(sequence.hashes))
        self._context.memory.count_prompt(reusable, transfer.grant.token_start // size)
        self.sequences[sequence.key] = sequence
        self._queue.add_prefill(sequence)
        self._context.send(ROUTER, Accepted(fence=fence))
        self._context.trace("prefill_queued", fence, num_tokens=len(sequence.tokens))

    def on_computed(self, sequence: Sequence, sampled: Sampled | None) -> None:
        """After the last row: seal a manifest of no chunks, which publishes at once."""
        if sampled is None:
            return
        incoming = self._destination().incoming[sequence.key]
        transfer = SourceTransfer(
            incoming.transfer.grant,
            self._context.layout,
            incoming.transfer.block_table,
            sequence.num_cached_tokens,
        )
        transfer.mark_complete()
        self._context.trace("prefill_done", sequence.fence, num_tokens=len(sequence.tokens))
        manifest = transfer.seal(
            tuple(sequence.tokens),
            self._context.model.identity,
            Token(
                index=sequence.num_generated,
                token_id=sampled.token_id,
                logprob=sampled.logprob,
                top_logprobs=sampled.top_logprobs,
                logits_digest=sampled.logits_digest,
            ),
            sequence.num_cached_tokens,
        )
        self._destination().on_seal(Seal(fence=sequence.fence, manifest=manifest))

    @property
    def num_open(self) -> int:
        """Prompts that are queued, computed, or leaving the engine."""
        return len(self.sequences) + len(self._stopping)

    def take(self, key: str) -> Sequence | None:
        """Hand a published sequence over to decode."""
        return self.sequences.pop(key, None)

    def stop(self, fence: Fence) -> bool:
        """Take an aborted sequence out; False while a batch or a load still writes its blocks."""
        sequence = self.sequences.pop(fence.transfer_id, None)
        if sequence is None:
            return True
        if self._queue.remove(sequence) and not sequence.is_loading:
            return True
        self._stopping[sequence.key] = sequence
        return False

    def on_batch_end(self, sequence: Sequence) -> None:
        """Nothing writes a stopped sequence any more: its reservation may finish its abort."""
        if self._stopping.pop(sequence.key, None) is not None:
            self._destination().aborts.on_compute_stopped(sequence.fence)
