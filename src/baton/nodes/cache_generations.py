"""The cache's generation: raised by an operator, and repeated to whoever has not followed."""

from baton.core.messages import ClearCache
from baton.core.snapshot import LoadSnapshot
from baton.nodes.copies import Copies
from baton.nodes.router_context import RouterContext


class CacheGenerations:
    """Whatever was claimed or copied under a lower generation counts for nothing any more."""

    def __init__(self, context: RouterContext, copies: Copies) -> None:
        self._context = context
        self._copies = copies
        self.current = 0

    def clear(self) -> None:
        """No history that exists now may be reused."""
        self.current += 1
        self._context.counters["cache_clears"] += 1
        self._context.trace_fleet("cache_cleared", generation=self.current)
        self._void_claims()
        self._copies.give_up_all("cache_cleared")
        for view in self._context.fleet:
            self._tell(view.info.worker_id)

    def on_joined(self, worker_id: str) -> None:
        """A new life may have found files of an older generation."""
        if self.current:
            self._tell(worker_id)

    def on_snapshot(self, snapshot: LoadSnapshot) -> None:
        """A word was lost, or a worker's files remember a generation that this router never saw."""
        if snapshot.cache_generation > self.current:
            self.current = snapshot.cache_generation
            self._void_claims()
        elif snapshot.cache_generation < self.current:
            self._tell(snapshot.worker_id)

    def _void_claims(self) -> None:
        self._context.holdings.raise_generation(self.current)

    def _tell(self, worker_id: str) -> None:
        self._context.send(worker_id, ClearCache(generation=self.current))
