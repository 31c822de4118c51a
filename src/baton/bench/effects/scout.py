"""What a drill must know of a simulated run: copies under way, and which message is which."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from baton.core.effects import Effect, MoveChunk, Send
from baton.core.events import ChunkMoved, Event
from baton.nodes.context import ROUTER
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import World

Lane = tuple[str, int]
"""A lane of the network and the number of a message on it."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk on its way: when it was ordered and when it had moved."""

    source_id: str
    destination_id: str
    begin_us: int
    end_us: int


class Scout(Observer):
    """Watches one run and changes nothing."""

    name = "scout"

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.sent: dict[Lane, str] = {}
        """What each message was; exact between workers and from the router."""
        self.killed: Counter[str] = Counter()
        """Workers that died as `sender` or `receiver` of a copy under way."""
        self._open: dict[tuple[str, int, int], Copy] = {}
        self._numbers: Counter[str] = Counter()

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """See Observer."""
        del world, event
        self._count(ROUTER, effects)

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """See Observer."""
        now_us = worker.world.timeline.now_us
        if isinstance(event, ChunkMoved):
            key = (worker.worker_id, event.reservation_id, event.chunk_id)
            copy = self._open.pop(key, None)
            if copy is not None and not event.error:
                self.copies.append(msgspec.structs.replace(copy, end_us=now_us))
        self._count(worker.worker_id, effects)
        for effect in effects:
            if isinstance(effect, MoveChunk):
                ends = (worker.worker_id, effect.peer_id)
                source, destination = ends if effect.write else reversed(ends)
                key = (worker.worker_id, effect.reservation_id, effect.chunk.chunk_id)
                self._open[key] = Copy(
                    source_id=source, destination_id=destination, begin_us=now_us, end_us=0
                )

    def crashed(self, worker: SimWorker) -> None:
        """See Observer."""
        name = worker.worker_id
        self.killed["sender"] += any(name == copy.source_id for copy in self._open.values())
        self.killed["receiver"] += any(name == copy.destination_id for copy in self._open.values())
        # Copies that the dead worker ran are over; those that its peers run end with an error.
        self._open = {key: copy for key, copy in self._open.items() if key[0] != name}

    def _count(self, sender: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                lane = f"{sender}>{effect.to}"
                self._numbers[lane] += 1
                self.sent[lane, self._numbers[lane]] = type(effect.message).__name__
