"""Which block of history goes next: four policies, one queue.

A policy ranks a block at the moment from which it may be given up; the lowest rank goes first, and
among equals the one that was used longest ago. Every step costs O(log n).
"""

import heapq
from abc import ABC, abstractmethod

Rank = tuple[float, float]
_EQUAL: Rank = (0.0, 0.0)
_MIN_STALE = 64


class EvictionPolicy(ABC):
    """Ranks a block by its depth in its prompt, how often it was used, and what it is worth."""

    needs_price = False
    """Prices are asked for only where they count."""

    @abstractmethod
    def rank(self, depth: int, num_uses: int, price_us: float) -> Rank:
        """The lower, the sooner it goes. `depth` counts the blocks before it in its prompt."""

    def gave_up(self, rank: Rank) -> None:  # noqa: B027  (most policies learn nothing from it)
        """A block of this rank was given up."""


class LRU(EvictionPolicy):
    """Least recently used first."""

    def rank(self, depth: int, num_uses: int, price_us: float) -> Rank:
        """All alike: the order of their last use decides."""
        return _EQUAL


class LFU(EvictionPolicy):
    """Least often used first; a block that comes back begins again."""

    def rank(self, depth: int, num_uses: int, price_us: float) -> Rank:
        """Uses decide."""
        return (float(num_uses), 0.0)


class LengthAware(EvictionPolicy):
    """Blocks late in long prompts first, since fewer prompts share them; of equals, the less used.

    This is Mooncake's LengthAwareCache (arXiv:2407.00079, table 1).
    """

    def rank(self, depth: int, num_uses: int, price_us: float) -> Rank:
        """Depth decides, then uses."""
        return (-float(depth), float(num_uses))


class CostAware(EvictionPolicy):
    """Keeps what is dear to get back: GreedyDual-Size-Frequency over blocks of one size.

    The price is that of recomputing the block at its depth, or of reloading it where a lower tier
    holds it and that is cheaper. The floor rises with each eviction to the rank that was given up,
    so that what was dear and popular once does not stay for ever.
    """

    needs_price = True

    def __init__(self) -> None:
        self._floor = 0.0

    def rank(self, depth: int, num_uses: int, price_us: float) -> Rank:
        """Price times uses, above the floor."""
        return (self._floor + num_uses * price_us, 0.0)

    def gave_up(self, rank: Rank) -> None:
        """Who comes or is used from now on stands above what just went."""
        self._floor = max(self._floor, rank[0])


POLICIES: dict[str, type[EvictionPolicy]] = {
    "lru": LRU,
    "lfu": LFU,
    "length_aware": LengthAware,
    "cost_aware": CostAware,
}
"""By their name in `cache.eviction`."""


class EvictionQueue:
    """Slots that may be given up, lowest rank first. What left it stays in the heap as a husk."""

    def __init__(self, num_slots: int) -> None:
        self._heap: list[tuple[Rank, int, int, int]] = []
        self._tickets = [0] * num_slots  # 0: not queued; else the one entry that counts
        self._last_ticket = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, slot: int) -> bool:
        return self._tickets[slot] != 0

    def add(self, slot: int, rank: Rank, stamp: int) -> None:
        """This slot may go; `stamp` grows with the time of its last use."""
        assert not self._tickets[slot], f"slot {slot} is queued twice"
        self._last_ticket += 1
        self._tickets[slot] = self._last_ticket
        self._length += 1
        heapq.heappush(self._heap, (rank, stamp, slot, self._last_ticket))

    def discard(self, slot: int) -> None:
        """This slot may not go, if it could."""
        if not self._tickets[slot]:
            return
        self._tickets[slot] = 0
        self._length -= 1
        if len(self._heap) > 2 * self._length + _MIN_STALE:
            self._heap = [entry for entry in self._heap if self._tickets[entry[2]] == entry[3]]
            heapq.heapify(self._heap)

    def peek(self) -> int:
        """The slot that goes next."""
        while True:
            _, _, slot, ticket = self._heap[0]
            if self._tickets[slot] == ticket:
                return slot
            heapq.heappop(self._heap)

    def pop(self) -> tuple[int, Rank]:
        """The slot that goes next, and its rank."""
        while True:
            rank, _, slot, ticket = heapq.heappop(self._heap)
            if self._tickets[slot] == ticket:
                self._tickets[slot] = 0
                self._length -= 1
                return slot, rank
