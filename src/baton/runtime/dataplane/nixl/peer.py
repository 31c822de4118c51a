"""One life of a peer, as the agent's thread sees it."""

from collections import deque

from baton.runtime.dataplane.nixl.flight import Flight
from baton.runtime.dataplane.nixl.lanes import MEMORY_LANES, UNKNOWN, Operation
from baton.runtime.dataplane.plane import NixlRegion


class Peer:
    """Orders to one peer run one after another, so a frozen peer delays nobody but itself."""

    def __init__(self, descriptor: NixlRegion, *, is_here: bool) -> None:
        self.descriptor = descriptor
        self.is_here = is_here
        """Under the same kernel: bytes should go through its memory."""
        self.waiting: deque[int] = deque()
        self.flight: Flight | None = None
        self.parked: deque[tuple[int, float]] = deque()
        """Handles of what is moved but not notified, oldest first, and when it was moved (s)."""
        self.lanes: dict[Operation, str] = {}
        self.asked_s = 0.0
        """When it was last told that bytes come which it must help to move."""
        self.rung_s = 0.0
        """When its doorbell was last rung."""
        self.is_retired = False

    def needs_help(self, operation: Operation) -> bool:
        """Whether the peer must make progress for bytes to arrive: not so through its memory."""
        return self.lanes.get(operation, UNKNOWN) not in MEMORY_LANES

    def is_fallback(self, operation: Operation) -> bool:
        """Whether a lane through memory was to be expected, and another is taken."""
        return self.is_here and self.needs_help(operation)
