"""Block pool: every block is free, used, cached or quarantined, and the four sum to the total."""

import heapq
from collections import Counter, OrderedDict

from baton.cache.changes import ChangeLog
from baton.core.cache import Tier


class BlockPool:
    """Reference counts and the hash index of one worker's K/V blocks.

    A used block has references. A cached block has none but holds named, immutable history and is
    evicted least recently used first. A quarantined block belongs to an aborted transfer whose
    writers are not proven quiet; it can be neither read nor reused.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))  # a heap: low ids first keeps runs contiguous
        self._references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._quarantined: set[int] = set()
        self.num_evicted = 0
        self.changes = ChangeLog()

    @property
    def num_free(self) -> int:
        """Blocks holding nothing."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks holding history that nobody references."""
        return len(self._cached)

    @property
    def num_quarantined(self) -> int:
        """Blocks of aborted transfers that are not quiet yet."""
        return len(self._quarantined)

    @property
    def num_used(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - self.num_free - self.num_cached - self.num_quarantined

    @property
    def num_available(self) -> int:
        """Blocks that an allocation could take: free, or cached and evictable."""
        return self.num_free + self.num_cached

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each, evicting history; None if too few."""
        if count > self.num_available:
            return None
        while len(self._free) < count:
            self._evict_one()
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            assert self._references[block] == 0 and self._hash_of[block] is None
            self._references[block] = 1
        return blocks

    def _evict_one(self) -> None:
        block, _ = self._cached.popitem(last=False)
        self._forget(block)
        heapq.heappush(self._free, block)
        self.num_evicted += 1

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of[block]
        if block_hash is not None:
            self._hash_of[block] = None
            if self._block_of.get(block_hash) == block:
                del self._block_of[block_hash]
                self.changes.removed(Tier.MEMORY, block_hash)

    def lookup(self, block_hash: bytes) -> int | None:
        """The block that holds this named history, if any."""
        return self._block_of.get(block_hash)

    def acquire(self, block: int) -> None:
        """Pin a cached or used block."""
        assert block not in self._quarantined
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference; the last one turns the block into history, or frees it."""
        assert self._references[block] > 0, f"block {block} is not referenced"
        self._references[block] -= 1
        if self._references[block]:
            return
        if self._hash_of[block] is None:
            heapq.heappush(self._free, block)
        else:
            self._cached[block] = None

    def name(self, block: int, block_hash: bytes) -> None:
        """Publish a full, final block under its hash; a second holder of a name stays unnamed."""
        assert self._references[block] > 0 and block not in self._quarantined
        if self._hash_of[block] is None and block_hash not in self._block_of:
            self._hash_of[block] = block_hash
            self._block_of[block_hash] = block
            self.changes.stored(Tier.MEMORY, block_hash)

    def quarantine(self, block: int) -> None:
        """Take a used block with one reference out of circulation until its writers are quiet."""
        assert self._references[block] == 1 and self._hash_of[block] is None
        self._references[block] = 0
        self._quarantined.add(block)

    def end_quarantine(self, block: int) -> None:
        """Its writers are proven quiet: the block is free again, its content worthless."""
        self._quarantined.remove(block)
        heapq.heappush(self._free, block)

    def num_references(self, block: int) -> int:
        """How many block tables hold this block."""
        return self._references[block]

    def is_named(self, block: int) -> bool:
        """True when the block is published history, which nobody may write."""
        return self._hash_of[block] is not None

    def is_quarantined(self, block: int) -> bool:
        """True when an aborted transfer's writers are not proven quiet."""
        return block in self._quarantined

    def kinds(self) -> list[tuple[str, ...]]:
        """For each block every one of the four kinds that claims it; exactly one is right."""
        free = Counter(self._free)
        return [
            ("free",) * free[block]
            + ("used",) * (self._references[block] > 0)
            + ("cached",) * (block in self._cached)
            + ("quarantined",) * (block in self._quarantined)
            for block in range(self.num_blocks)
        ]

    def check(self) -> None:
        """Assert the accounting invariant; cheap enough for idle moments and tests."""
        used = sum(1 for count in self._references if count)
        assert used == self.num_used, (used, self.num_used)
        assert not (self._quarantined & set(self._cached))
        for block_hash, block in self._block_of.items():
            assert self._hash_of[block] == block_hash
