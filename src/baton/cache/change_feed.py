"""How the router follows what one life of a worker holds: in order, without a gap."""

from collections.abc import Sequence
from enum import StrEnum

from baton.cache.index import BlockIndex
from baton.core.cache import CacheChange, Place, Tier
from baton.core.messages import CacheChanges, CacheHoldings

_HASH_NBYTES = 16


class Told(StrEnum):
    """What became of a word about what a worker holds."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    """All of it was known."""
    GAP = "gap"
    """Something before it was lost: it changes nothing until that is told again."""
    PARTIAL = "partial"
    """A page of more, kept until all are here."""
    MALFORMED = "malformed"
    """No worker of this version says this."""


class ChangeFeed:
    """Applies one life's changes to the index, each once and in order."""

    def __init__(self, owner: str, epoch: int, index: BlockIndex) -> None:
        self.owner = owner
        self.epoch = epoch
        self.next_sequence = 1
        self.generation = 0
        self._index = index
        self._pages: dict[int, tuple[CacheChange, ...]] = {}
        self._pages_of = (0, 0, 0)
        self._asked_us: int | None = None

    def on_changes(self, message: CacheChanges) -> Told:
        """Take what is new of these changes, unless some before them are missing."""
        known = self.next_sequence - message.first_sequence
        if message.first_sequence < 1 or not _are_names(message.changes):
            return Told.MALFORMED
        if known < 0:
            return Told.GAP
        fresh = message.changes[known:]
        if not fresh:
            return Told.DUPLICATE
        if message.generation < self.generation:
            return Told.MALFORMED
        if message.generation > self.generation:
            self._index.clear(self.owner)
            self.generation = message.generation
        self._apply(fresh)
        self.next_sequence += len(fresh)
        return Told.APPLIED

    def on_holdings(self, message: CacheHoldings) -> Told:
        """Keep a page; the last one replaces everything that was claimed, at once."""
        if not 0 <= message.page < message.num_pages or not _are_names(message.holdings):
            return Told.MALFORMED
        if message.next_sequence <= self.next_sequence and message.generation <= self.generation:
            return Told.DUPLICATE
        pages_of = (message.generation, message.next_sequence, message.num_pages)
        if pages_of < self._pages_of:
            return Told.DUPLICATE
        if pages_of > self._pages_of:
            self._pages_of, self._pages = pages_of, {}
        self._pages[message.page] = message.holdings
        if len(self._pages) < message.num_pages:
            return Told.PARTIAL
        self._index.clear(self.owner)
        self.generation, self.next_sequence = message.generation, message.next_sequence
        for page in self._pages.values():
            self._apply(page)
        self._pages = {}
        return Told.APPLIED

    def wants_replay(self, sequence: int, now_us: int, retry_us: int) -> bool:
        """True when the worker's next number shows a gap and none was asked for lately."""
        if sequence <= self.next_sequence:
            self._asked_us = None
            return False
        if self._asked_us is not None and now_us - self._asked_us < retry_us:
            return False
        self._asked_us = now_us
        return True

    def _apply(self, changes: Sequence[CacheChange]) -> None:
        self._asked_us = None
        places = {tier: Place(self.owner, self.epoch, tier, self.generation) for tier in Tier}
        for change in changes:
            if change.stored:
                self._index.store(places[change.tier], change.hashes)
            else:
                self._index.remove(places[change.tier], change.hashes)


def _are_names(changes: Sequence[CacheChange]) -> bool:
    return all(len(name) == _HASH_NBYTES for change in changes for name in change.hashes)
