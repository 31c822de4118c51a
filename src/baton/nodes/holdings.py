"""The router's part of the global index: follows what every live worker holds."""

from baton.cache.change_feed import ChangeFeed, Told
from baton.core.messages import CacheChanges, CacheHoldings, CacheReplay
from baton.core.snapshot import LoadSnapshot, WorkerInfo
from baton.nodes.router_context import RouterContext

_SWEEP_BLOCKS = 1024
_SWEEP_PAUSE_US = 20_000


class Holdings:
    """One feed for each live worker over one index; nothing is claimed for a life that is over."""

    def __init__(self, context: RouterContext) -> None:
        self._context = context
        self._index = context.holdings
        self._feeds: dict[str, ChangeFeed] = {}
        self._next_sweep_us = 0

    def feed(self, worker_id: str) -> ChangeFeed | None:
        """What is known of this worker's account."""
        return self._feeds.get(worker_id)

    def on_joined(self, info: WorkerInfo) -> None:
        """A new life begins with nothing."""
        self._index.forget(info.worker_id)
        self._feeds[info.worker_id] = ChangeFeed(info.worker_id, info.epoch, self._index)

    def on_lost(self, worker_id: str) -> None:
        """A life is over, and with it every claim."""
        self._index.forget(worker_id)
        self._feeds.pop(worker_id, None)

    def on_message(self, info: WorkerInfo, message: CacheChanges | CacheHoldings) -> None:
        """A word of a live worker about what it holds."""
        feed = self._feeds[info.worker_id]
        if isinstance(message, CacheChanges):
            told = feed.on_changes(message)
        else:
            told = feed.on_holdings(message)
        self._context.counters[f"cache_words_{told}"] += 1
        if told is Told.GAP:
            assert isinstance(message, CacheChanges)
            self._ask(feed, message.first_sequence)

    def on_snapshot(self, info: WorkerInfo, snapshot: LoadSnapshot) -> None:
        """A heartbeat shows the loss of a change after which nothing has changed any more."""
        self._ask(self._feeds[info.worker_id], snapshot.cache_sequence)
        if self._context.now_us >= self._next_sweep_us:
            self._next_sweep_us = self._context.now_us + _SWEEP_PAUSE_US
            self._index.sweep(_SWEEP_BLOCKS)

    def _ask(self, feed: ChangeFeed, sequence: int) -> None:
        retry_us = self._context.transfer.retry_ms * 1000
        if feed.wants_replay(sequence, self._context.now_us, retry_us):
            self._context.counters["cache_replays"] += 1
            self._context.send(feed.owner, CacheReplay(next_sequence=feed.next_sequence))
