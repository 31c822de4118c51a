"""The worker's part of the global index: it tells the router every change of what it holds."""

from baton.cache.change_journal import ChangeJournal
from baton.core.messages import CacheReplay
from baton.nodes.context import ROUTER, WorkerContext


class Announcer:
    """One message for everything that one event has changed; silent unless `cache.announce`."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.journal = ChangeJournal()
        self._is_enabled = context.cache.announce
        if self._is_enabled:
            context.memory.announce()

    @property
    def next_sequence(self) -> int:
        """Number of the next change; 0 if none will ever be told."""
        return self.journal.next_sequence if self._is_enabled else 0

    def flush(self) -> None:
        """Tell what has changed since the last call."""
        if not self._is_enabled:
            return
        memory = self._context.memory
        message = self.journal.record(memory.take_changes(), memory.generation)
        if message is not None:
            self._context.counters["cache_changes"] += len(message.changes)
            self._context.send(ROUTER, message)

    def on_replay(self, message: CacheReplay) -> None:
        """The router has missed something: tell it again, or all that is held."""
        self._context.counters["cache_replays"] += 1
        if self._is_enabled:
            for told in self.journal.replay(message.next_sequence):
                self._context.send(ROUTER, told)
