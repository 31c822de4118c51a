"""Feeds the engine: prefills wait first-come-first-served, decodes run, one batch at a time."""

from collections.abc import Callable

from baton.core.effects import RunBatch
from baton.core.work import Batch
from baton.nodes.context import WorkerContext
from baton.nodes.sequence import Sequence
from baton.policy.batching import BatchLimits, Waiting, token_budget_batch


class EngineQueue:
    """Sequences that want rows computed. Blocks of an ended sequence outlive the batch in flight.

    `admit` gives a waiting sequence its blocks, or returns False when memory is short.
    """

    def __init__(self, context: WorkerContext, admit: Callable[[Sequence], bool]) -> None:
        self._context = context
        self._admit = admit
        self._limits = BatchLimits(
            max_batch_tokens=context.worker.max_batch_tokens,
            max_num_seqs=context.worker.max_num_seqs,
        )
        self.waiting: dict[str, Sequence] = {}
        self.running: dict[str, Sequence] = {}
        self.batch: Batch | None = None
        self.members: dict[str, Sequence] = {}
        self.batch_started_us = 0
        self._num_batches = 0

    def add_prefill(self, sequence: Sequence) -> None:
        """Queue a sequence whose prompt is to be computed here."""
        self.waiting[sequence.key] = sequence

    def add_decode(self, sequence: Sequence) -> None:
        """A sequence with a published entry and one pending token."""
        self.waiting.pop(sequence.key, None)
        self.running[sequence.key] = sequence

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out; True when no running batch touches its blocks."""
        self.waiting.pop(sequence.key, None)
        self.running.pop(sequence.key, None)
        return not sequence.in_batch

    @property
    def pending_tokens(self) -> int:
        """Prompt rows waiting to be computed."""
        return sum(sequence.num_pending for sequence in self.waiting.values())

    @property
    def batch_us(self) -> int:
        """How long the batch in flight has been running; 0 while the engine is idle."""
        return self._context.now_us - self.batch_started_us if self.batch else 0

    def start_batch(self) -> None:
        """Ask the host for the next step, if the engine is idle and there is work."""
        if self.batch is not None or not (self.waiting or self.running):
            return
        decodes = self._decodes()
        prefills = self._prefills(len(decodes))
        chosen = token_budget_batch(decodes, prefills, self._limits)
        if not chosen:
            return
        items = []
        report_layers = False
        for key, num_rows in chosen:
            sequence = self.running.get(key) or self.waiting[key]
            sequence.in_batch = True
            self.members[key] = sequence
            items.append(sequence.work(num_rows))
            report_layers |= key in self.waiting and not sequence.fence.colocated
        self._num_batches += 1
        self.batch_started_us = self._context.now_us
        self.batch = Batch(
            batch_id=self._num_batches, items=tuple(items), report_layers=report_layers
        )
        self._context.emit(RunBatch(batch=self.batch))

    def _decodes(self) -> list[str]:
        """Running sequences with room for their next row; the youngest yields its blocks."""
        memory = self._context.memory
        keys: list[str] = []
        for sequence in list(self.running.values()):
            if sequence.key not in self.running:
                continue  # preempted for an older one
            while not memory.grow(sequence.block_table, len(sequence.tokens)):
                youngest = next(reversed(self.running.values()))
                self.preempt(youngest)
                if youngest is sequence:
                    break
            if sequence.key in self.running:
                keys.append(sequence.key)
        return keys

    def preempt(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back; it recomputes its rows here, bit for bit, later."""
        assert not sequence.in_batch
        self._context.counters["preemptions"] += 1
        self._context.trace("preempted", sequence.fence, num_tokens=len(sequence.tokens))
        del self.running[sequence.key]
        self._context.memory.release(sequence.block_table)
        sequence.block_table = []
        sequence.num_computed = 0
        self.waiting = {sequence.key: sequence, **self.waiting}

    def _prefills(self, num_decodes: int) -> list[Waiting]:
        """First come, first served. Who cannot get blocks lets those pass that have theirs."""
        found: list[Waiting] = []
        short = False
        budget = self._limits.max_batch_tokens - num_decodes
        for sequence in self.waiting.values():
            if budget <= 0:
                break
            if short and not sequence.block_table:
                continue
            if not self._admit(sequence):
                short = True
                continue
            found.append(
                Waiting(
                    key=sequence.key,
                    position=sequence.num_computed,
                    num_rows=sequence.num_pending,
                )
            )
            budget -= sequence.num_pending
        return found

    @property
    def is_short(self) -> bool:
        """A preempted sequence waits for blocks: nobody new should take them."""
        return any(s.num_generated and not s.block_table for s in self.waiting.values())

    def end_batch(self, batch_id: int, error: str) -> dict[str, Sequence]:
        """The batch in flight is over; returns its sequences, ended ones included."""
        assert self.batch is not None and self.batch.batch_id == batch_id
        for item in self.batch.items:
            sequence = self.members[f"{item.request_id}.{item.generation}"]
            sequence.in_batch = False
            if not error:
                sequence.num_computed = item.end
        members, self.members, self.batch = self.members, {}, None
        return members
