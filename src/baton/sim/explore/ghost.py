"""A life that was given up: out of reach, and what it had posted may still land.

It hears and says nothing any more. What it had sent is on its way as after a crash; the one write
that its plane had posted lands at any later moment, or never, until its end is known. The host
tells of that end only after the last byte (decision 0007), so nothing lands behind it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from baton.core.effects import MoveChunk
from baton.sim.explore.host import Host, layers_of
from baton.sim.explore.memory import Rows
from baton.sim.explore.setup import DECODE, PREFILL
from baton.sim.explore.store import Numbered

NOBODY, ENDED, FIRST = 0, 1, 2
"""Values of a state: nobody was given up; somebody was, and that end is known; from here on the
number of a ghost."""


class Ghost(NamedTuple):
    """What is left of a life."""

    side: int
    epoch: int
    order: MoveChunk | None = None
    """The write that may still land."""
    data: Rows = ()


class Ghosts:
    """At most one in a run, by number."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._known: Numbered[Ghost] = Numbered()

    def of(self, value: int) -> Ghost | None:
        """The ghost of a state, while it may still do something."""
        return self._known.values[value - FIRST] if value >= FIRST else None

    def born(self, side: int, at: int) -> int:
        """The value of a worker that is given up in this state of it."""
        host = self._hosts[side]
        plane = host.states.values[at].plane
        order = plane[0] if plane else None
        ghost = Ghost(side, host.epoch(at))
        if side == PREFILL and isinstance(order, MoveChunk) and order.write:
            data = host.read(at, layers_of(order), order.local_blocks)
            ghost = ghost._replace(order=order, data=data)
        return self._number(ghost)

    def may_land(self, value: int, decode_at: int) -> bool:
        """Whether its write reaches the memory for which it was posted."""
        ghost = self.of(value)
        order = ghost.order if ghost is not None else None
        return order is not None and self._hosts[DECODE].epoch(decode_at) == order.peer_epoch

    def land(self, value: int, decode_at: int) -> tuple[int, int]:
        """The value and the decode worker's state afterwards. Raises Violation."""
        ghost = self.of(value)
        assert ghost is not None and ghost.order is not None
        after = self._hosts[DECODE].write(decode_at, ghost.order, ghost.data)
        return self._number(ghost._replace(order=None, data=())), after

    def may_write(self, value: int, decode_at: int, reservations: tuple[int, ...]) -> bool:
        """Whether it may still write into one of these."""
        ghost = self.of(value)
        if ghost is None or ghost.order is None or not self.may_land(value, decode_at):
            return False
        return ghost.order.reservation_id in reservations

    def _number(self, ghost: Ghost) -> int:
        return FIRST + self._known.number(ghost)
