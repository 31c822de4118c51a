"""A worker's numbered account of what it holds, from which a lost part can be told again."""

from collections import deque
from collections.abc import Iterator, Sequence

from baton.core.cache import CacheChange, Tier
from baton.core.messages import CacheChanges, CacheHoldings

MAX_TAIL_HASHES = 65_536
MAX_PAGE_HASHES = 16_384

_NOTHING = CacheChange(stored=False, tier=Tier.MEMORY, hashes=())
"""Gives a raised generation a number, so that its loss shows like any other."""


class ChangeJournal:
    """Numbers changes from 1 within an epoch and remembers the last ones.

    What is older than these is told by what is held now, in pages.
    """

    def __init__(
        self,
        *,
        max_tail_hashes: int = MAX_TAIL_HASHES,
        max_page_hashes: int = MAX_PAGE_HASHES,
    ) -> None:
        assert max_tail_hashes > 0 and max_page_hashes > 0
        self.generation = 0
        self.next_sequence = 1
        self._tail: deque[CacheChange] = deque()
        self._num_tail_hashes = 0
        self._max_tail_hashes = max_tail_hashes
        self._max_page_hashes = max_page_hashes
        self._held: dict[Tier, dict[bytes, None]] = {tier: {} for tier in Tier}

    def record(self, changes: Sequence[CacheChange], generation: int) -> CacheChanges | None:
        """Number these, and say what is to be told of them; None if nothing has changed.

        A raised generation voids what was held before it, and the tail, which told of that.
        """
        assert generation >= self.generation
        if generation > self.generation:
            self.generation = generation
            self._tail.clear()
            self._num_tail_hashes = 0
            for held in self._held.values():
                held.clear()
            changes = changes or (_NOTHING,)
        if not changes:
            return None
        first = self.next_sequence
        for change in changes:
            self._keep(change)
        self.next_sequence += len(changes)
        return CacheChanges(generation=generation, first_sequence=first, changes=tuple(changes))

    def _keep(self, change: CacheChange) -> None:
        held = self._held[change.tier]
        for block_hash in change.hashes:
            if change.stored:
                held[block_hash] = None
            else:
                held.pop(block_hash, None)
        self._tail.append(change)
        self._num_tail_hashes += len(change.hashes)
        while self._num_tail_hashes > self._max_tail_hashes:
            self._num_tail_hashes -= len(self._tail.popleft().hashes)

    def replay(self, sequence: int) -> list[CacheChanges | CacheHoldings]:
        """Everything from this number on, or everything that is held if that is not known."""
        oldest = self.next_sequence - len(self._tail)
        if sequence == self.next_sequence:
            return []
        if oldest <= sequence < self.next_sequence:
            missing = tuple(self._tail)[sequence - oldest :]
            return [
                CacheChanges(generation=self.generation, first_sequence=sequence, changes=missing)
            ]
        pages = list(self._pages())
        return [
            CacheHoldings(
                generation=self.generation,
                next_sequence=self.next_sequence,
                page=page,
                num_pages=len(pages),
                holdings=holdings,
            )
            for page, holdings in enumerate(pages)
        ]

    def _pages(self) -> Iterator[tuple[CacheChange, ...]]:
        """At least one page: to hold nothing has to be told too."""
        is_empty = True
        for tier, held in self._held.items():
            hashes = tuple(held)
            for start in range(0, len(hashes), self._max_page_hashes):
                part = hashes[start : start + self._max_page_hashes]
                yield (CacheChange(stored=True, tier=tier, hashes=part),)
                is_empty = False
        if is_empty:
            yield ()

    @property
    def num_held(self) -> int:
        """Names that this worker claims to hold, once for each tier."""
        return sum(map(len, self._held.values()))
