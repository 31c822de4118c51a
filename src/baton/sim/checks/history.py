"""What has a name holds the rows of that name, whether computed, received or brought up."""

from collections.abc import Sequence

import numpy as np

from baton.core.effects import Effect
from baton.core.events import BlockCopied, Event
from baton.core.layout import KVLayout
from baton.sim.checks.truths import Truths
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker


class HistoryIsTrue(Observer):
    """Every block that gets a name equals the truth of that name, at that moment."""

    name = "history-is-true"

    def __init__(self, truths: Truths) -> None:
        self._truths = truths
        self._seen: dict[tuple[str, int], dict[bytes, int]] = {}
        self._places: dict[tuple[KVLayout, bytes], tuple[str, int]] = {}
        self._known: set[tuple[KVLayout, str]] = set()

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Look at what is named since the last event."""
        history = worker.node.context.memory.pool.history
        life = (worker.worker_id, worker.epoch)
        seen = self._seen.get(life, {})
        now = {name: slot for name in history if (slot := history.lookup(name)) is not None}
        if now == seen:
            return
        self._seen[life] = now
        for name, block in now.items():
            if seen.get(name) != block:
                self._judge(worker, name, block)

    def _judge(self, worker: SimWorker, name: bytes, block: int) -> None:
        size = worker.layout.block_size
        place = self._places.get((worker.layout, name)) or self._learn(worker, name)
        if place is None:
            self.fail(f"{worker.worker_id}: block {block} has a name of no prompt or answer")
            return
        request_id, depth = place
        truth = self._truths.truth(request_id).rows[:, depth * size : (depth + 1) * size]
        if not np.array_equal(worker.rows[:, block], truth):
            self.fail(
                f"{worker.worker_id}: block {block} is named as block {depth} of {request_id} "
                "and holds other rows"
            )

    def _learn(self, worker: SimWorker, name: bytes) -> tuple[str, int] | None:
        layout = worker.layout
        for request_id in self._truths.request_ids:
            if (layout, request_id) in self._known:
                continue
            self._known.add((layout, request_id))
            if self._truths.request(request_id).num_prompt_tokens >= worker.model.max_model_len:
                continue  # nobody ever computes it
            truth = self._truths.truth(request_id)
            tokens = truth.token_ids[: truth.rows.shape[1]]
            hashes = worker.node.context.memory.hashes(truth.request, tokens)
            for depth, block_hash in enumerate(hashes):
                self._places.setdefault((layout, block_hash), (request_id, depth))
        return self._places.get((layout, name))


class TiersAddUp(Observer):
    """Slots, names, readers and eviction order of every tier agree after each copy."""

    name = "tiers-add-up"

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Count them one by one."""
        if not isinstance(event, BlockCopied):
            return
        memory = worker.node.context.memory
        for check in (memory.pool.check, *(table.check for table in memory.lower)):
            try:
                check()
            except AssertionError as error:
                self.fail(f"{worker.worker_id}: {error}")
