"""What the world shows to those who watch it; watchers decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from baton.core.effects import CopyBlock, Effect
from baton.core.events import Event
from baton.core.manifest import CacheEntry
from baton.core.work import Batch, WorkItem
from baton.protocol.directory import PublishOutcome

if TYPE_CHECKING:
    from baton.sim.worker import SimWorker
    from baton.sim.world import World


class Violation(Exception):
    """An invariant does not hold; `checker` names it."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text


class Observer:
    """Hooks without effect; a checker overrides those it needs."""

    name = "observer"

    def fail(self, text: str) -> None:
        """Report a broken invariant."""
        raise Violation(self.name, text)

    def started(self, worker: SimWorker) -> None:
        """A life of a worker begins."""

    def crashed(self, worker: SimWorker) -> None:
        """A life of a worker is over, and its memory with it."""

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """The router took an event."""

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """A worker took an event."""

    def published(self, worker: SimWorker, entry: CacheEntry, outcome: PublishOutcome) -> None:
        """A worker's directory was asked to publish; on success nothing has read it yet."""

    def computing(self, worker: SimWorker, batch: Batch) -> None:
        """The engine is about to read and write rows of a batch."""

    def computed(self, worker: SimWorker, item: WorkItem, layer: int) -> None:
        """The engine has written one layer of an item."""

    def landed(
        self, worker: SimWorker, reservation_id: int, blocks: Sequence[int], nbytes: int
    ) -> None:
        """The data plane has written into a worker's blocks."""

    def swapped(self, worker: SimWorker, order: CopyBlock) -> None:
        """A copy between tiers has written its target."""

    def quiet(self, world: World) -> None:
        """Every request has ended, everything healed, and time has passed."""
