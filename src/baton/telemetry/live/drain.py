"""How long it takes until nothing is under way any more of the routes that were taken back."""

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.vocabulary import ROUTER_PLACE

_LEAVES = ("published", "attempt_failed", "ended")


class DrainClock:
    """Follows the router's events: attempts under way, and those a revocation waits for."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()
        self._waited: set[str] = set()
        self._since_us = 0
        self.num_rollbacks = 0
        """Revocations that have drained."""
        self.rollback_us = 0
        """Sum of their durations."""

    @property
    def depth(self) -> int:
        """Attempts of revoked routes that are neither published nor over."""
        return len(self._waited)

    def take(self, event: TraceEvent) -> None:
        """Take one event of any place."""
        if event.place != ROUTER_PLACE:
            return
        if event.name == "routed":
            self._under_way.add(event.request_id)
        elif event.name == "routes_revoked":
            self._since_us = self._since_us if self._waited else event.at_us
            self._waited |= self._under_way
            self._close(event.at_us)
        elif event.name in _LEAVES:
            self._under_way.discard(event.request_id)
            if event.request_id in self._waited:
                self._waited.discard(event.request_id)
                self._close(event.at_us)

    def _close(self, at_us: int) -> None:
        if not self._waited:
            self.num_rollbacks += 1
            self.rollback_us += at_us - self._since_us
