"""The decode directory: publication is one compare-and-swap on the generation (0x06D, 0x10)."""

from collections import OrderedDict
from enum import StrEnum

from baton.core.manifest import CacheEntry


class PublishOutcome(StrEnum):
    """Stale and duplicate are named outcomes, never exceptions."""

    PUBLISHED = "published"
    DUPLICATE = "duplicate"
    STALE = "stale"


class Directory:
    """Complete caches that decode may read, and the generations below which nothing may enter.

    `floors` outlive entries so that a late completion of an ended request stays fenced; they are
    bounded, oldest first.
    """

    def __init__(self, max_floors: int = 65_536) -> None:
        self._entries: dict[str, CacheEntry] = {}
        self._floors: OrderedDict[str, int] = OrderedDict()
        self._max_floors = max_floors

    def __len__(self) -> int:
        return len(self._entries)

    def publish(self, entry: CacheEntry) -> PublishOutcome:
        """Make `entry` visible unless its generation was superseded or published before."""
        current = self._entries.get(entry.request_id)
        if current is not None and current.transfer_id == entry.transfer_id:
            return PublishOutcome.DUPLICATE
        if current is not None and current.generation >= entry.generation:
            return PublishOutcome.STALE
        if self.is_fenced(entry.request_id, entry.generation):
            return PublishOutcome.STALE
        self._entries[entry.request_id] = entry
        return PublishOutcome.PUBLISHED

    def lookup(self, request_id: str, generation: int) -> CacheEntry | None:
        """The published entry of exactly this generation, else None."""
        entry = self._entries.get(request_id)
        return entry if entry is not None and entry.generation == generation else None

    def unpublish(self, request_id: str, generation: int) -> None:
        """Remove an entry at its end and fence its generation."""
        if self.lookup(request_id, generation) is not None:
            del self._entries[request_id]
        self.fence(request_id, generation + 1)

    def fence(self, request_id: str, generation: int) -> None:
        """From now on refuse every generation of this request below `generation`."""
        floor = max(generation, self._floors.pop(request_id, 0))
        self._floors[request_id] = floor
        while len(self._floors) > self._max_floors:
            self._floors.popitem(last=False)

    def is_fenced(self, request_id: str, generation: int) -> bool:
        """True when this generation may not enter any more."""
        return generation < self._floors.get(request_id, 0)
