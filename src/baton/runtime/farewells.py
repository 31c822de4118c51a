"""What a worker's node is told of dead peers, and when: after their last byte, not before."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from baton.core.events import Event, Received
from baton.core.messages import Envelope, PeerDown
from baton.runtime.dataplane import DataPlane

_PAUSE_S = 0.02
_MAX_TRIES = 100
"""Then only the router's own repetition goes on asking, once for each heartbeat."""


class Farewells:
    """On the event loop. To the node "it has ended" means that its bytes have ended, too."""

    def __init__(
        self, plane: DataPlane, loop: asyncio.AbstractEventLoop, feed: Callable[[Event], None]
    ) -> None:
        self._plane = plane
        self._loop = loop
        self._feed = feed
        self._pending: set[tuple[str, int]] = set()

    def on_down(self, envelope: Envelope, down: PeerDown) -> Envelope:
        """The plane lets go of a peer; returns what the node may be told now.

        Where its process is dead and its bytes may still land, that it is given up; the rest
        follows through `feed`.
        """
        life = (down.worker_id, down.epoch)
        self._plane.disconnect(*life)
        if not down.ended or self._plane.sever(*life):
            return envelope
        if life not in self._pending:
            self._pending.add(life)
            self._loop.call_later(_PAUSE_S, self._ask, envelope, life, 1)
        return replace(envelope, message=replace(down, ended=False))

    def _ask(self, envelope: Envelope, life: tuple[str, int], tries: int) -> None:
        if self._plane.sever(*life):
            self._pending.discard(life)
            self._feed(Received(envelope=envelope))
        elif tries < _MAX_TRIES:
            self._loop.call_later(_PAUSE_S, self._ask, envelope, life, tries + 1)
        else:
            self._pending.discard(life)
