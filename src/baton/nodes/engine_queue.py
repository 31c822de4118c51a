"""Feeds the engine: sequences wait or run, a batch policy chooses, one batch at a time."""

from collections.abc import Callable

import msgspec

from baton.core.effects import RunBatch
from baton.core.work import Batch
from baton.nodes.context import WorkerContext
from baton.nodes.sequence import Sequence
from baton.policy.batching.policies import POLICIES
from baton.policy.batching.preemption import Preemptible, choose_victim
from baton.policy.batching.view import BatchLimits, Entry, QueueView, Rows


class EngineQueue:
    """Sequences that want rows computed. Blocks of an ended sequence outlive the batch in flight.

    `admit` gives a waiting sequence its blocks, or returns False when memory is short. `on_waiting`
    hears of each prompt that is queued; one that is loading is not shown to the policy.
    """

    def __init__(
        self,
        context: WorkerContext,
        admit: Callable[[Sequence], bool],
        on_waiting: Callable[[Sequence], object] = lambda _: None,
    ) -> None:
        self._context = context
        self._admit = admit
        self._on_waiting = on_waiting
        self.policy = POLICIES[context.worker.batch_policy]
        self._limits = _limits(context)
        self.waiting: dict[str, Sequence] = {}
        self.running: dict[str, Sequence] = {}
        self.batch: Batch | None = None
        self.members: dict[str, Sequence] = {}
        self.batch_started_us = 0
        self._num_batches = 0
        self._num_arrivals = 0

    def add_prefill(self, sequence: Sequence) -> None:
        """Queue a sequence whose prompt is to be computed here."""
        self._arrive(sequence)
        self.waiting[sequence.key] = sequence
        self._on_waiting(sequence)

    def add_decode(self, sequence: Sequence) -> None:
        """A sequence with a published entry and one pending token."""
        self._arrive(sequence)
        self.waiting.pop(sequence.key, None)
        self.running[sequence.key] = sequence

    def _arrive(self, sequence: Sequence) -> None:
        """Its place in the order of arrival is given once, whatever phase it is in."""
        if not sequence.arrival:
            self._num_arrivals += 1
            sequence.arrival = self._num_arrivals
            sequence.arrived_us = sequence.last_rows_us = self._context.now_us

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

    @property
    def has_started(self) -> bool:
        """Somebody here has been in a batch and has not left: a static batch is still open."""
        return any(s.num_iterations for s in (*self.waiting.values(), *self.running.values()))

    def start_batch(self) -> None:
        """Ask the host for the next step, if the engine is idle and there is work."""
        if self.batch is not None or not (self.waiting or self.running):
            return
        self._grow_decodes()
        chosen = self._choose()
        if not chosen:
            return
        items = []
        report_layers = False
        for key, num_rows in chosen:
            sequence = self.running.get(key) or self.waiting[key]
            sequence.in_batch = True
            sequence.num_iterations += 1
            self.members[key] = sequence
            start, end = sequence.num_computed, sequence.num_computed + num_rows
            is_active = self._context.memory.is_active(sequence.block_table, start, end)
            assert is_active, f"{key} would write history"
            items.append(sequence.work(num_rows))
            report_layers |= key in self.waiting and sequence.streams_layers
            if sequence.num_iterations == 1 and key in self.waiting:
                self._context.trace("prefill_running", sequence.fence, num_rows=num_rows)
        self._pass_over()
        self._num_batches += 1
        self.batch_started_us = self._context.now_us
        self.batch = Batch(
            batch_id=self._num_batches, items=tuple(items), report_layers=report_layers
        )
        self._context.emit(RunBatch(batch=self.batch))

    def _choose(self) -> list[Rows]:
        """The policy's choice, asked again whenever a chosen prompt got its blocks, or none.

        Only who is chosen takes blocks, and the prefix that it finds leaves room for others.
        """
        decodes = [self._entry(sequence) for sequence in self.running.values()]
        prefills = {k: self._entry(s) for k, s in self.waiting.items() if not s.is_loading}
        while True:
            view = QueueView(decodes=decodes, prefills=list(prefills.values()))
            chosen = self.policy.select(view, self._limits)
            homeless = next((k for k, _ in chosen if self._lacks_blocks(k, prefills)), None)
            if homeless is None:
                return chosen
            sequence = self.waiting[homeless]
            is_short = not self._admit(sequence)
            entry = msgspec.structs.replace(self._entry(sequence), is_short=is_short)
            assert is_short or entry.has_blocks
            prefills[homeless] = entry

    def _lacks_blocks(self, key: str, prefills: dict[str, Entry]) -> bool:
        entry = prefills.get(key)
        return entry is not None and not entry.has_blocks

    def _entry(self, sequence: Sequence) -> Entry:
        sampling = sequence.request.sampling
        return Entry(
            key=sequence.key,
            num_rows=sequence.num_pending,
            position=sequence.num_computed,
            arrival=sequence.arrival,
            reserved_tokens=sequence.request.num_prompt_tokens + sampling.max_tokens,
            num_iterations=sequence.num_iterations,
            waited_us=self._context.now_us - sequence.last_rows_us,
            num_passed_over=sequence.num_passed_over,
            has_blocks=bool(sequence.block_table),
        )

    def _pass_over(self) -> None:
        for sequence in (*self.running.values(), *self.waiting.values()):
            sequence.num_passed_over = 0 if sequence.in_batch else sequence.num_passed_over + 1

    def _grow_decodes(self) -> None:
        """Room for the next row of every running sequence; when it is short, somebody yields."""
        memory = self._context.memory
        for sequence in list(self.running.values()):
            if sequence.key not in self.running:
                continue  # preempted for another one
            while not memory.allocate(sequence.block_table, len(sequence.tokens)):
                victim = self._victim()
                self.preempt(victim)
                if victim is sequence:
                    break

    def _victim(self) -> Sequence:
        worker, now_us = self._context.worker, self._context.now_us
        key = choose_victim(
            [
                Preemptible(
                    key=sequence.key,
                    num_preemptions=sequence.num_preemptions,
                    age_us=now_us - sequence.arrived_us,
                )
                for sequence in self.running.values()
            ],
            max_preemptions=worker.max_preemptions,
            age_override_us=worker.age_override_ms * 1000,
        )
        return self.running[key]

    def preempt(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back; it recomputes its rows here, bit for bit, later."""
        assert not sequence.in_batch
        self._context.counters["preemptions"] += 1
        sequence.num_preemptions += 1
        self._context.trace("preempted", sequence.fence, num_tokens=len(sequence.tokens))
        del self.running[sequence.key]
        self._context.memory.free(sequence.block_table)
        sequence.block_table = []
        sequence.num_computed = 0
        self.waiting = {sequence.key: sequence, **self.waiting}

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
            sequence.last_rows_us = self._context.now_us
            if not error:
                sequence.num_computed = item.end
        members, self.members, self.batch = self.members, {}, None
        return members


def _limits(context: WorkerContext) -> BatchLimits:
    worker = context.worker
    return BatchLimits(
        max_batch_tokens=worker.max_batch_tokens,
        max_num_seqs=worker.max_num_seqs,
        num_slots=context.memory.pool.num_blocks * context.layout.block_size,
        prompt_order=worker.prompt_order,
        age_override_us=worker.age_override_ms * 1000,
        max_passed_over=worker.max_passed_over,
    )
