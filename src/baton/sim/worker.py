"""The simulated host of a worker: the production node over modelled hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from baton.core import events
from baton.core.events import Event
from baton.core.layout import KVLayout, ModelInfo
from baton.core.manifest import CacheEntry
from baton.core.messages import Envelope, Hello, Message, Welcome
from baton.core.snapshot import WorkerInfo
from baton.nodes.context import ROUTER
from baton.nodes.worker import Worker
from baton.protocol.directory import PublishOutcome
from baton.sim.arithmetic import Rows
from baton.sim.clock import Clock
from baton.sim.dice import roll
from baton.sim.engine import SimEngine
from baton.sim.faults import ChunkFault, EngineFault
from baton.sim.orders import perform
from baton.sim.plane import SimPlane
from baton.sim.tiers import Disk, SimTiers

if TYPE_CHECKING:
    from baton.sim.world import World


class SimWorker:
    """One life of one worker. While it is stalled whatever should happen to it waits."""

    def __init__(self, world: World, worker_id: str, ordinal: int, epoch: int) -> None:
        plan, role = world.plan, world.plan.roles[ordinal]
        self.world = world
        self.worker_id, self.ordinal, self.role, self.epoch = worker_id, ordinal, role, epoch
        self.hardware = plan.hardware
        self.model: ModelInfo = world.model_of(ordinal)
        self.layout: KVLayout = self.model.layout
        self.clock = plan.clocks.get(worker_id, Clock())
        self.alive = True
        self.joined = False
        self.slowness = 1
        self._stalled_until_us = 0
        self._waiting: list[Callable[[], None]] = []
        self._timer_us: int | None = None
        # Never zero: what was not written here must not look like anything.
        garbage = -(ordinal + 1) * 1_000_003 - epoch
        self.num_blocks = plan.pools[ordinal]
        shape = (plan.num_layers, self.num_blocks, self.layout.block_size)
        self.rows: Rows = np.full(shape, garbage, np.int64)
        self.engine = SimEngine(self)
        self.plane = SimPlane(self)
        self.tiers = SimTiers(self, world.disks.setdefault(worker_id, Disk()))
        self.node = Worker(
            worker_id=worker_id,
            ordinal=ordinal,
            epoch=epoch,
            role=role,
            model=self.model,
            num_blocks=self.num_blocks,
            num_host_blocks=plan.num_host_blocks,
            num_disk_blocks=plan.num_disk_blocks,
            worker=plan.worker,
            cache=plan.cache,
            transfer=plan.transfer,
            heartbeat_ms=plan.router.heartbeat_ms,
            verifier=world.verifier,
        )
        self._watch_directory()
        world.observe(lambda o: o.started(self))

    def _watch_directory(self) -> None:
        directory, publish = self.node.directory, self.node.directory.publish

        def again(entry: CacheEntry) -> PublishOutcome:
            outcome = publish(entry)
            self.world.mark(f"offered_{outcome}")
            return outcome

        def watched(entry: CacheEntry) -> PublishOutcome:
            outcome = publish(entry)
            self.world.observe(lambda o: o.published(self, entry, outcome))
            return outcome

        self.publish_again = again
        """For a watcher: what the directory says to an entry that it has taken before."""
        directory.publish = watched  # type: ignore[method-assign]

    def join(self) -> None:
        """Say hello to the router until it answers, and start the heartbeat."""
        recovered = self.tiers.recovered()
        if recovered is not None:
            self.feed(recovered)
        self._greet()
        self.feed(events.Tick())

    def _greet(self) -> None:
        if not self.joined:
            self._send(ROUTER, Hello(info=self.info()))
            self.after(self.world.plan.transfer.retry_ms * 1000, self._greet)

    def info(self) -> WorkerInfo:
        """What this worker tells the others about itself."""
        return WorkerInfo(
            worker_id=self.worker_id,
            epoch=self.epoch,
            role=self.role,
            pid=0,
            version="simulated",
            endpoint="",
            model=self.model,
            num_blocks=self.num_blocks,
            max_num_seqs=self.world.plan.worker.max_admitted,
            region=b"",
        )

    def read(self, block_table: tuple[int, ...], num_tokens: int) -> Rows:
        """Rows `[layers, 0 .. num_tokens-1]` as they are read through a block table."""
        size = self.layout.block_size
        blocks = list(block_table[: self.layout.num_blocks(num_tokens)])
        shape = (self.layout.num_layers, len(blocks) * size)
        rows: Rows = self.rows[:, blocks].reshape(shape)[:, :num_tokens]
        return rows

    # -- time ----------------------------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something in this process after a delay, unless it is dead by then."""
        self.world.timeline.after(delay_us, lambda: self._do(action))

    def _do(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.world.timeline.now_us < self._stalled_until_us:
            self._waiting.append(action)
        else:
            action()

    def stall(self, duration_us: int) -> None:
        """Stand still for a while."""
        end_us = self.world.timeline.now_us + duration_us
        self._stalled_until_us = max(self._stalled_until_us, end_us)
        self.world.timeline.at(self._stalled_until_us, self._resume)

    def heal(self) -> None:
        """Go on at once, at full speed."""
        self.slowness = 1
        self._stalled_until_us = 0
        self._resume()

    def _resume(self) -> None:
        if self.world.timeline.now_us < self._stalled_until_us:
            return
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            self._do(action)

    def _arm(self) -> None:
        now_us = self.world.timeline.now_us
        due_us = max(now_us + 1, self.clock.world_us(self.node.next_deadline()))
        if self._timer_us is None or due_us < self._timer_us:
            self._timer_us = due_us
            self.world.timeline.at(due_us, lambda: self._do(lambda: self._ring(due_us)))

    def _ring(self, due_us: int) -> None:
        if self._timer_us != due_us:
            return
        self._timer_us = None
        now_us = self.clock.local_us(self.world.timeline.now_us)
        if self.node.next_deadline() <= now_us:
            self.feed(events.Tick())
        else:
            self._arm()

    # -- events and effects --------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """A control message is here."""
        self.joined |= isinstance(envelope.message, Welcome)
        self._do(lambda: self.feed(events.Received(envelope=envelope)))

    def feed(self, event: Event) -> None:
        """Give the node an event and perform what it asks for."""
        if not self.alive:
            return
        self.world.record(self.worker_id, event)
        now_us = self.clock.local_us(self.world.timeline.now_us)
        asked = self.node.handle(event, now_us)
        self.world.observe(lambda o: o.handled(self, event, asked))
        for effect in asked:
            perform(effect, self._send, self.engine, self.plane, self.tiers)
        self._arm()

    def _send(self, to: str, message: Message) -> None:
        envelope = Envelope(sender_id=self.worker_id, sender_epoch=self.epoch, message=message)
        self.world.network.send(to, envelope)

    def counted_fault(
        self, place: str, number: int, kinds: tuple[str, ...]
    ) -> ChunkFault | EngineFault | None:
        """The fault that hits this worker's `number`-th copy or batch, listed or drawn."""
        world = self.world
        if world.network.healed:
            return None
        number += self.epoch * 1_000_000
        fault = world.listed.get((place, self.worker_id, number))
        if fault is None and not world.plan.replayed:
            fault = self._drawn_fault(place, number, kinds)
        if fault is not None:
            world.applied.append(fault)
        return fault

    def _drawn_fault(
        self, place: str, number: int, kinds: tuple[str, ...]
    ) -> ChunkFault | EngineFault | None:
        plan = self.world.plan
        left = roll(plan.seed, f"{place} {self.worker_id}", number)
        for kind in kinds:
            left -= getattr(plan.rates, kind)
            if left >= 0:
                continue
            if place == "engine":
                return EngineFault(worker_id=self.worker_id, number=number)
            delay_us = int(10 ** (3 + 3 * roll(plan.seed, f"{place} delay", number)))
            return ChunkFault(worker_id=self.worker_id, number=number, kind=kind, delay_us=delay_us)
        return None

    def crash(self) -> None:
        """The process is gone: nothing of it happens any more."""
        self.alive = False
        self._waiting.clear()
        self.tiers.crash()
        self.world.observe(lambda o: o.crashed(self))
