"""The global index: what the router knows of who holds which named block, and in which tier.

A block is one dict entry whose value is a mask with four bits for each owner's slot. Equal masks
are one object, since the blocks of a prompt mostly have the same owners. The names are a hash
chain, so an owner that holds a block mostly holds those before it too: `match` looks at the two
ends of a range and walks in only where they differ.
"""

import sys
from collections.abc import Iterator, Sequence

from baton.cache.match import Match
from baton.cache.match_steps import MatchSteps
from baton.cache.owners import SLOT_BITS, SLOT_MASK, TIER_BIT, Owner, OwnerTable
from baton.core.cache import Place, Tier

_NUM_SHARDS = 256
"""One for each first byte of a name. A shard is what a sweep takes at a time, and what a dict
copies when it grows: at a million blocks 4,000 entries, where one dict would stall for all."""
_KEY_NBYTES = sys.getsizeof(bytes(16))
_MIN_MASKS = 4096


class BlockIndex:
    """Who holds which block, by owner, life, tier and generation."""

    def __init__(self) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_NUM_SHARDS)]
        self._owners = OwnerTable()
        self._masks: dict[int, int] = {}
        self._steps = MatchSteps(self._owners)
        self._sweep = _Sweep(self)
        self.num_ignored = 0
        """Claims of lives and generations that are over."""

    # -- claims --------------------------------------------------------------------------------

    def store(self, place: Place, hashes: Sequence[bytes]) -> None:
        """These blocks can be read there now."""
        owner = self._owners.current(place, create=True)
        if owner is None:
            self.num_ignored += len(hashes)
            return
        bit = _bit(owner, place.tier)
        shards, added = self._shards, 0
        last, after = -1, -1  # neighbours mostly have the same owners
        for block_hash in hashes:
            shard = shards[block_hash[0]]
            mask = shard.get(block_hash, 0)
            if mask != last:
                last, after = mask, self.intern(mask | bit)
            if mask != after:
                shard[block_hash] = after
                added += 1
        owner.counts[place.tier] += added
        self._owners.num_claims += added

    def remove(self, place: Place, hashes: Sequence[bytes]) -> None:
        """These blocks cannot be read there any more."""
        owner = self._owners.current(place, create=False)
        if owner is None:
            self.num_ignored += len(hashes)
            return
        bit = _bit(owner, place.tier)
        shards, removed = self._shards, 0
        last, after = -1, -1
        for block_hash in hashes:
            shard = shards[block_hash[0]]
            mask = shard.get(block_hash, 0)
            if mask & bit:
                removed += 1
                if mask == bit:
                    del shard[block_hash]
                    continue
                if mask != last:
                    last, after = mask, self.intern(mask ^ bit)
                shard[block_hash] = after
        owner.counts[place.tier] -= removed
        self._owners.num_claims -= removed

    def forget(self, owner: str) -> None:
        """The owner's life is over: its claims are gone now, and late ones are ignored."""
        self._owners.forget(owner)

    def clear(self, owner: str) -> None:
        """Nothing is claimed for the owner any more; its life goes on and may claim again."""
        self._owners.clear(owner)

    def raise_generation(self, generation: int) -> None:
        """Nothing is claimed for anybody under a lower generation, now or later."""
        self._owners.raise_generation(generation)

    def sweep(self, max_blocks: int) -> int:
        """Take dead bits out of about so many blocks; how many were looked at, 0: all clean."""
        return self._sweep.step(max_blocks)

    def intern(self, mask: int) -> int:
        """The one object that stands for this mask."""
        known = self._masks.setdefault(mask, mask)
        self._sweep.keep(known)
        return known

    # -- questions -----------------------------------------------------------------------------

    def match(self, hashes: Sequence[bytes]) -> Match:
        """How many leading blocks of these each owner holds.

        An owner with a hole may be said to go deeper than the hole where both ends of the range
        around it look alike; it then finds fewer blocks than the route hoped for.
        """
        changes = self._changes(hashes) if hashes else []
        steps, memory_steps = self._steps.of(changes, len(hashes))
        return Match(len(hashes), steps, memory_steps)

    def _changes(self, hashes: Sequence[bytes]) -> list[tuple[int, int]]:
        """Where along the prompt the live mask changes, and to what; starts with block 0."""
        shards, live = self._shards, self._owners.live_mask
        clean = not self._owners.dead
        low, name = 0, hashes[0]
        mask = shards[name[0]].get(name, 0)
        high, name = len(hashes) - 1, hashes[-1]
        end = shards[name[0]].get(name, 0)
        if not clean:
            mask, end = mask & live, end & live
        last, changes = end, [(0, mask)]
        ends: list[tuple[int, int]] = []  # right ends still to be reached, the nearest one last
        while mask:
            if end == mask:
                low = high
            elif high - low == 1:
                changes.append((high, end))
                low, mask = high, end
            else:
                ends.append((high, end))
                high = (low + high) >> 1
                name = hashes[high]
                end = shards[name[0]].get(name, 0)
                if not clean:
                    end &= live
                continue
            if mask == last or not ends:
                break
            high, end = ends.pop()
        return changes

    def places(self, block_hash: bytes) -> tuple[Place, ...]:
        """Everywhere that this block can be read, memory first within an owner."""
        mask = self._shards[block_hash[0]].get(block_hash, 0) & self._owners.live_mask
        found = []
        while mask:
            slot = ((mask & -mask).bit_length() - 1) // SLOT_BITS
            nibble = mask >> SLOT_BITS * slot & SLOT_MASK
            mask ^= nibble << SLOT_BITS * slot
            owner = self._owners.at(slot)
            assert owner is not None
            found += [
                Place(owner.name, owner.epoch, tier, owner.generation)
                for tier, position in TIER_BIT.items()
                if nibble >> position & 1
            ]
        return tuple(found)

    def holdings(self, owner: str) -> dict[Tier, int]:
        """How many blocks are claimed for this owner in each tier."""
        known = self._owners.get(owner)
        return dict(known.counts) if known is not None else dict.fromkeys(Tier, 0)

    def owners(self) -> dict[str, tuple[int, int]]:
        """Epoch and generation of every owner that may claim."""
        return {owner.name: (owner.epoch, owner.generation) for owner in self._owners.living()}

    def __iter__(self) -> Iterator[bytes]:
        """Names of all blocks that anybody holds."""
        live = self._owners.live_mask
        for shard in self._shards:
            yield from (block_hash for block_hash, mask in shard.items() if mask & live)

    @property
    def num_blocks(self) -> int:
        """Blocks with an entry; those of the dead count until they are swept."""
        return sum(map(len, self._shards))

    @property
    def num_claims(self) -> int:
        """Claims that hold: one for each owner and tier of a block."""
        return self._owners.num_claims

    @property
    def nbytes(self) -> int:
        """Memory of the entries, their names and the masks; an estimate, without the allocator."""
        tables = sum(map(sys.getsizeof, self._shards)) + sys.getsizeof(self._masks)
        return tables + self.num_blocks * _KEY_NBYTES + sum(map(sys.getsizeof, self._masks))


def _bit(owner: Owner, tier: Tier) -> int:
    assert owner.slot is not None
    return 1 << SLOT_BITS * owner.slot + TIER_BIT[tier]


class _Sweep:
    """Walks the shards in steps. One pass takes out the slots that were dead when it began.

    A pass also finds the masks that are still in use and drops the others.
    """

    def __init__(self, index: BlockIndex) -> None:
        self._index = index
        self._shard = 0
        self._dead: set[int] = set()
        self._dead_mask = 0
        self._kept: dict[int, int] | None = None  # None between passes
        self._max_masks = _MIN_MASKS

    def keep(self, mask: int) -> None:
        """A mask that was written during a pass is in use."""
        if self._kept is not None:
            self._kept[mask] = mask

    def step(self, max_blocks: int) -> int:
        """Whole shards until so many blocks were looked at, or the pass is over."""
        index, seen = self._index, 0
        if self._kept is None and not self._begin():
            return 0
        while self._shard < _NUM_SHARDS and seen < max_blocks:
            seen += self._clean(index._shards[self._shard])
            self._shard += 1
        if self._shard == _NUM_SHARDS:
            self._end()
        return max(seen, 1)

    def _begin(self) -> bool:
        index = self._index
        if not index._owners.dead and len(index._masks) <= self._max_masks:
            return False
        self._shard, self._kept = 0, {}
        self._dead = set(index._owners.dead)
        self._dead_mask = sum(SLOT_MASK << SLOT_BITS * slot for slot in self._dead)
        return True

    def _clean(self, shard: dict[bytes, int]) -> int:
        index, dead = self._index, self._dead_mask
        looked_at = list(shard.items())
        for block_hash, mask in looked_at:
            if not mask & dead:
                self.keep(mask)
            elif alive := mask & ~dead:
                shard[block_hash] = index.intern(alive)
            else:
                del shard[block_hash]
        return len(looked_at)

    def _end(self) -> None:
        index = self._index
        assert self._kept is not None
        index._masks, self._kept = self._kept, None
        self._max_masks = max(_MIN_MASKS, 2 * len(index._masks))
        index._owners.bury(self._dead)
        self._dead = set()
