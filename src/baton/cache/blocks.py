"""Block pool: every block is free, used, cached or quarantined, and the four sum to the total."""

import heapq
from collections import Counter

from baton.cache.changes import ChangeLog
from baton.cache.eviction import LRU, EvictionPolicy
from baton.cache.history import History
from baton.core.cache import Tier


class BlockPool:
    """Reference counts and the hash index of one worker's K/V blocks.

    A used block has references. A cached block has none but holds named, immutable history, which
    is evicted in the order of the policy, the end of a prompt before its beginning. A quarantined
    block belongs to an aborted transfer whose writers are not proven quiet; it can be neither read
    nor reused.
    """

    def __init__(self, num_blocks: int, policy: EvictionPolicy | None = None) -> None:
        assert num_blocks > 0
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))  # a heap: low ids first keeps runs contiguous
        self._references = [0] * num_blocks
        self.history = History(num_blocks, policy or LRU())
        self._names = self.history.names
        self._quarantined: set[int] = set()
        self._barred: set[int] = set()
        self.num_evicted = 0
        self.changes = ChangeLog()
        self.notes_idle = False
        """Somebody takes the blocks that become idle history, so they are noted."""
        self._idle: dict[int, None] = {}
        self._was_copied: set[int] = set()
        """Blocks that a lower tier got since they have their names, whatever it did with them."""

    @property
    def num_free(self) -> int:
        """Blocks holding nothing."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks holding history that nobody references."""
        return self.history.num_idle

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
        """Blocks that an allocation could take: free, or cached and nothing below it is used."""
        return len(self._free) + self.history.num_reclaimable

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each, evicting history; None if too few."""
        if count > self.num_available:
            return None
        while len(self._free) < count:
            self._evict_one()
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            assert self._references[block] == 0 and self._names[block] is None
            self._references[block] = 1
        return blocks

    def _evict_one(self) -> None:
        evicted = self.history.pop()
        assert evicted is not None, "what is reclaimable has a leaf"
        block, block_hash = evicted
        self.changes.removed(Tier.MEMORY, block_hash)
        self._idle.pop(block, None)
        heapq.heappush(self._free, block)
        self.num_evicted += 1

    def lookup(self, block_hash: bytes) -> int | None:
        """The block that holds this named history, if any."""
        return self.history.lookup(block_hash)

    def acquire(self, block: int, *, used: bool = True) -> None:
        """Pin a cached or used block; a copy to another tier reads it and is no use of it."""
        assert block not in self._quarantined
        if self._references[block] == 0:
            assert self._names[block] is not None, f"block {block} is free"
            self.history.hold(block)
        self._references[block] += 1
        if used:
            self.history.use(block)

    def release(self, block: int, *, used: bool = True) -> None:
        """Drop one reference; the last one turns the block into history, or frees it."""
        left = self._references[block] - 1
        assert left >= 0, f"block {block} is not referenced"
        self._references[block] = left
        if self._names[block] is None:
            if not left:
                self._free_now(block)
            return
        if used:
            self.history.touch(block)
        if left:
            return
        self.history.let_go(block)
        if used and self.notes_idle and block not in self._was_copied:
            self._idle[block] = None

    def _free_now(self, block: int) -> None:
        self._barred.discard(block)
        heapq.heappush(self._free, block)

    def name(
        self, block: int, block_hash: bytes, parent: bytes | None = None, depth: int = 0
    ) -> bool:
        """Publish a full, final block under its hash, `depth` blocks after the start of its prompt.

        A second holder of a name stays unnamed. False when the name is of no use here: what stands
        before it is not named, or the block's rows are older than the cache's generation.
        """
        assert self._references[block] > 0 and block not in self._quarantined
        held = self.history.lookup
        if block in self._barred or (parent is not None and held(parent) is None):
            return False
        if self._names[block] is None and held(block_hash) is None:
            self.history.insert(block, block_hash, parent, depth)
            self._was_copied.discard(block)
            self.changes.stored(Tier.MEMORY, block_hash)
        return True

    def unname(self, block: int) -> None:
        """A block is history no more: free if nobody reads it, else private to its readers."""
        block_hash = self.history.hash_of(block)
        assert block_hash is not None
        self.history.forget(block)
        self.changes.removed(Tier.MEMORY, block_hash)
        self._idle.pop(block, None)
        if not self._references[block]:
            self._free_now(block)

    def clear(self) -> None:
        """Nothing is history any more, and nothing that is in use now will ever be."""
        for block_hash in self.history:
            self.changes.removed(Tier.MEMORY, block_hash)
        idle = self.history.cold_first()
        self.history.clear()
        self._idle = {}
        for block in idle:
            self._free_now(block)
        self._barred = {block for block, count in enumerate(self._references) if count}
        self._barred |= self._quarantined

    def take_idle(self) -> list[int]:
        """Blocks that became history and were not taken before, shallow ones first."""
        taken, self._idle = self._idle, {}
        return sorted(taken, key=lambda block: (self.history.depth(block), block))

    def went_down(self, block: int, block_hash: bytes) -> None:
        """A lower tier has it now; it is not noted again before it gets a name anew.

        Else a tier below that is smaller than this one would take every block that is read here
        again, at each reading, and give up another one for it.
        """
        if self._names[block] == block_hash:
            self._was_copied.add(block)

    def quarantine(self, block: int) -> None:
        """Take a used block with one reference out of circulation until its writers are quiet."""
        assert self._references[block] == 1 and not self.is_named(block)
        self._references[block] = 0
        self._quarantined.add(block)

    def end_quarantine(self, block: int) -> None:
        """Its writers are proven quiet: the block is free again, its content worthless."""
        self._quarantined.remove(block)
        self._free_now(block)

    def num_references(self, block: int) -> int:
        """How many block tables hold this block."""
        return self._references[block]

    def is_named(self, block: int) -> bool:
        """True when the block is published history, which nobody may write."""
        return self._names[block] is not None

    def is_quarantined(self, block: int) -> bool:
        """True when an aborted transfer's writers are not proven quiet."""
        return block in self._quarantined

    def kinds(self) -> list[tuple[str, ...]]:
        """For each block every one of the four kinds that claims it; exactly one is right."""
        free = Counter(self._free)
        return [
            ("free",) * free[block]
            + ("used",) * (self._references[block] > 0)
            + ("cached",) * self.history.is_idle(block)
            + ("quarantined",) * (block in self._quarantined)
            for block in range(self.num_blocks)
        ]

    def check(self) -> None:
        """Assert the accounting invariant; cheap enough for idle moments and tests."""
        used = sum(1 for count in self._references if count)
        assert used == self.num_used, (used, self.num_used)
        idle = set(self.history.cold_first())
        assert not self._quarantined & idle
        assert not any(self._references[block] for block in idle)
        self.history.check()
