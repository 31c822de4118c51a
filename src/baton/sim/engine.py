"""The engine thread of a simulated worker: one batch after another, layer after layer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from baton.core.effects import DigestKV
from baton.core.events import BatchDone, KVDigested, LayerReady
from baton.core.work import Batch, BatchResult, Sampled, WorkItem
from baton.sim.arithmetic import Rows, checksum, draw, evidence, next_row
from baton.sim.faults import EngineFault

if TYPE_CHECKING:
    from baton.sim.worker import SimWorker


class SimEngine:
    """Computes batches on the worker's rows in virtual time."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._queue: deque[Batch | DigestKV] = deque()
        self._busy = False
        self.num_batches = 0
        self.hangs = False
        """No batch ever ends again; only the end of the process helps."""

    @property
    def is_busy(self) -> bool:
        """An order is being worked on, or supposed to be."""
        return self._busy

    def submit(self, order: Batch | DigestKV) -> None:
        """Queue a batch or a digest."""
        self._queue.append(order)
        self._next()

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        order = self._queue.popleft()
        if isinstance(order, DigestKV):
            self._worker.after(self._worker.hardware.digest_us, lambda: self._digest(order))
            return
        self.num_batches += 1
        failing = self._fails(self.num_batches)
        self._worker.world.observe(lambda o: o.computing(self._worker, order))
        self._worker.after(self._layer_us(order), lambda: self._layer(order, 0, failing))

    def _fails(self, number: int) -> bool:
        fault = self._worker.counted_fault("engine", number, ("engine",))
        return isinstance(fault, EngineFault)

    def _layer_us(self, batch: Batch) -> int:
        worker = self._worker
        step_us = worker.world.step_time.step_us(batch, worker.world.is_neighbour_busy(worker))
        return step_us * worker.slowness // worker.layout.num_layers

    def _layer(self, batch: Batch, layer: int, failing: bool) -> None:
        if self.hangs:
            return
        worker, num_layers = self._worker, self._worker.layout.num_layers
        if failing and layer == num_layers // 2:
            self._end(BatchResult(batch_id=batch.batch_id, error="injected fault"))
            return
        for item in batch.items:
            self._write(item, layer)
        if batch.report_layers:
            worker.feed(LayerReady(batch_id=batch.batch_id, layer=layer))
        if layer + 1 < num_layers:
            worker.after(self._layer_us(batch), lambda: self._layer(batch, layer + 1, failing))
        else:
            self._end(self._result(batch))

    def _write(self, item: WorkItem, layer: int) -> None:
        size, rows = self._worker.layout.block_size, self._worker.rows[layer]
        table = item.block_table
        position = item.start
        last = position - 1
        before = int(rows[table[last // size], last % size]) if position else 0
        for token_id in item.token_ids:
            before = next_row(layer, position, token_id, before)
            rows[table[position // size], position % size] = before
            position += 1
        worker = self._worker
        worker.world.observe(lambda o: o.computed(worker, item, layer))

    def _result(self, batch: Batch) -> BatchResult:
        sampled = tuple(self._sampled(item) for item in batch.items if item.sample)
        duration_us = self._layer_us(batch) * self._worker.layout.num_layers
        return BatchResult(batch_id=batch.batch_id, sampled=sampled, duration_us=duration_us)

    def _sampled(self, item: WorkItem) -> Sampled:
        rows = self._worker.read(item.block_table, item.end)
        logprob, top, logits = evidence(rows, item.sampling, verify=item.verify)
        return Sampled(
            request_id=item.request_id,
            generation=item.generation,
            token_id=draw(rows, item.sampling.seed, item.end),
            logprob=logprob,
            top_logprobs=top,
            logits_digest=logits,
        )

    def _digest(self, order: DigestKV) -> None:
        if self.hangs:
            return
        rows: Rows = self._worker.read(order.block_ids, order.num_tokens)
        self._busy = False
        self._worker.feed(
            KVDigested(
                request_id=order.request_id,
                generation=order.generation,
                kv_digest=f"{checksum(rows):x}",
            )
        )
        self._next()

    def _end(self, result: BatchResult) -> None:
        self._busy = False
        self._worker.feed(BatchDone(result=result))
        self._next()
