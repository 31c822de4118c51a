"""An engine that only takes time: steps as long as the profile says, slower beside a neighbour."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from baton.core.effects import DigestKV
from baton.core.events import BatchDone, Event, KVDigested, LayerReady
from baton.core.work import Batch, BatchResult, Sampled
from baton.policy.service_profile import phase_of
from baton.sim.replay.costs import Costs
from baton.sim.step_time import phase_rows
from baton.sim.timeline import Timeline

TOKEN_ID = 1
"""What every draw gives; no time depends on it."""


class ReplayEngine:
    """One batch after another. Work left is counted in time alone, and passes slower beside others.

    Whenever a neighbour begins or ends a step, what was done so far is settled and the rest goes
    on at the new speed, so a long prefill is slowed exactly while the other core decodes.
    """

    def __init__(
        self,
        profile: Costs,
        timeline: Timeline,
        num_layers: int,
        feed: Callable[[Event], None],
    ) -> None:
        self._profile = profile
        self._timeline = timeline
        self._num_layers = num_layers
        self._feed = feed
        self._queue: deque[Batch | DigestKV] = deque()
        self._batch: Batch | None = None
        self._finishing = False
        """The step is computed; its result is on the way from the engine's thread to the node."""
        self.neighbours: Sequence[ReplayEngine] = ()
        self.num_steps = 0
        self.busy_us = 0
        self._factor_beside = 1.0
        self._alone_us = 0.0
        self._done_us = 0.0
        self._speed = 1.0
        self._settled_us = 0
        self._begun_us = 0
        self._next_layer = 0
        self._overhead_us = 0.0
        self._plan_number = 0

    @property
    def is_computing(self) -> bool:
        """A step reads memory now."""
        return self._batch is not None and not self._finishing

    def submit(self, order: Batch | DigestKV) -> None:
        """Queue a batch or a digest."""
        self._queue.append(order)
        self._next()

    def _next(self) -> None:
        if self._batch is not None or not self._queue:
            return
        order = self._queue.popleft()
        if isinstance(order, DigestKV):
            digested = KVDigested(
                request_id=order.request_id, generation=order.generation, kv_digest="replayed"
            )
            self._timeline.after(1, lambda: self._feed(digested))
            self._next()
            return
        self._begin(order)

    def _begin(self, batch: Batch) -> None:
        prefills, visible = phase_rows(batch.items)
        self._batch = batch
        self.num_steps += 1
        self._alone_us = self._profile.step_us(prefills, visible)
        self._factor_beside = self._profile.contention.factor(phase_of(prefills, visible))
        self._overhead_us = self._profile.overhead.us(len(batch.items))
        self._done_us = 0.0
        self._settled_us = self._begun_us = self._timeline.now_us
        self._next_layer = 0 if batch.report_layers else self._num_layers - 1
        self._speed = self._speed_now()
        self._plan()
        self._tell_neighbours()

    def _speed_now(self) -> float:
        busy = any(neighbour.is_computing for neighbour in self.neighbours)
        return 1 / self._factor_beside if busy else 1.0

    def _tell_neighbours(self) -> None:
        for neighbour in self.neighbours:
            neighbour.on_neighbour_changed()

    def on_neighbour_changed(self) -> None:
        """A neighbour began or ended a step."""
        if not self.is_computing:
            return
        speed = self._speed_now()
        if speed != self._speed:
            self._settle()
            self._speed = speed
            self._plan()

    def _settle(self) -> None:
        now_us = self._timeline.now_us
        self._done_us += (now_us - self._settled_us) * self._speed
        self._settled_us = now_us

    def _plan(self) -> None:
        """Come back when the next layer that somebody waits for is done at the present speed."""
        self._plan_number += 1
        number = self._plan_number
        due_us = self._alone_us * (self._next_layer + 1) / self._num_layers
        # Times are whole microseconds; the crumb keeps 3.0000001 from becoming 4.
        wait_us = math.ceil((due_us - self._done_us) / self._speed - 1e-6)
        self._timeline.after(max(0, wait_us), lambda: self._reach(number))

    def _reach(self, number: int) -> None:
        if number != self._plan_number or self._batch is None:
            return  # the speed has changed since: another action is on its way
        self._settle()
        batch, layer = self._batch, self._next_layer
        if batch.report_layers:
            self._feed(LayerReady(batch_id=batch.batch_id, layer=layer))
        if layer + 1 < self._num_layers:
            self._next_layer += 1
            self._plan()
            return
        self._finishing = True
        duration_us = self._timeline.now_us - self._begun_us
        self.busy_us += duration_us
        self._tell_neighbours()
        self._timeline.after(round(self._overhead_us), lambda: self._end(batch, duration_us))

    def _end(self, batch: Batch, duration_us: int) -> None:
        sampled = tuple(
            Sampled(request_id=item.request_id, generation=item.generation, token_id=TOKEN_ID)
            for item in batch.items
            if item.sample
        )
        self._batch, self._finishing = None, False
        result = BatchResult(batch_id=batch.batch_id, sampled=sampled, duration_us=duration_us)
        self._feed(BatchDone(result=result))
        self._next()
