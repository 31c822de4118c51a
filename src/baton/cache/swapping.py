"""Copies between the tiers of one worker, as bookkeeping: what is pinned, what is true after."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from baton.cache.blocks import BlockPool
from baton.cache.swap import Swap
from baton.cache.tier import TierTable
from baton.core.cache import Address, Tier

MAX_QUEUED = 256
"""Blocks of history that may wait to be copied down; the deepest of more are skipped."""
NO_SLOT = -1
"""Of a block that an earlier life left and that got no slot in this one."""
_SPARE_FRACTION = 8
"""A tier is short when fewer than one in so many of its blocks could be taken at once."""


class Swapping:
    """Write-through downwards, on demand upwards. Nothing here ever makes an allocation wait.

    A block that becomes history is copied to the fastest tier below, once for each time that it is
    named. Where that tier runs short its coldest blocks go one tier further, or are given up.
    """

    def __init__(
        self,
        pool: BlockPool,
        lower: Sequence[TierTable],
        address: Callable[[Tier, int], Address],
    ) -> None:
        self._pool = pool
        self._lower = lower
        self._address = address
        self._tables = {table.tier: table for table in lower}
        self._waiting: dict[bytes, None] = {}
        self._drops: list[tuple[Address, bytes]] = []
        self._num_demotions = 0
        self.num_skipped = 0
        pool.notes_idle = bool(lower)

    # -- down ----------------------------------------------------------------------------------

    def swap_out(self, max_swaps: int, generation: int) -> list[Swap]:
        """Begin at most so many copies: of what has to make room, then of new history."""
        if not self._lower:
            return []
        self._enqueue()
        return list(islice(self._next_swaps(generation), max_swaps))

    def _next_swaps(self, generation: int) -> Iterator[Swap]:
        while (swap := self._demote(generation)) is not None:
            yield swap
        while self._waiting and not self._is_short:
            if self._num_demotions and not self._lower[0].num_free:
                return  # a slot is about to become free, and nothing has to be given up for it
            block_hash = next(iter(self._waiting))
            del self._waiting[block_hash]
            swap = self._store(block_hash, generation)
            if swap is not None:
                yield swap

    @property
    def _is_short(self) -> bool:
        """A pin could now cost somebody an allocation."""
        return self._pool.num_available <= self._pool.num_blocks // _SPARE_FRACTION

    def _enqueue(self) -> None:
        for block in self._pool.take_idle():
            block_hash = self._pool.history.names[block]
            if block_hash is None or self._lower[0].knows(block_hash):
                continue
            if len(self._waiting) >= MAX_QUEUED:
                self.num_skipped += 1
            else:
                self._waiting[block_hash] = None

    def _store(self, block_hash: bytes, generation: int) -> Swap | None:
        """Copy a block of memory down, if it is still there and not yet below."""
        table, history = self._lower[0], self._pool.history
        block = self._pool.lookup(block_hash)
        if block is None or table.knows(block_hash):
            return None
        if not table.num_free and not self._give_up(table):
            self.num_skipped += 1
            return None
        slot = table.reserve(block_hash, history.parent(block), history.depth(block))
        assert slot is not None, "there is a free slot, and the name is not known"
        self._pool.acquire(block, used=False)
        return Swap(
            block_hash=block_hash,
            generation=generation,
            source=self._address(Tier.MEMORY, block),
            target=self._address(table.tier, slot),
        )

    def _give_up(self, table: TierTable) -> bool:
        evicted = table.evict()
        if evicted is not None:
            self._drop(table.tier, *evicted)
        return evicted is not None

    def _demote(self, generation: int) -> Swap | None:
        """Move the coldest block of a host tier that is short of room to the disk."""
        if len(self._lower) < 2:
            return None
        upper, below = self._lower
        while upper.num_free <= upper.num_slots // _SPARE_FRACTION:
            slot = upper.coldest()
            if slot is None:
                return None
            block_hash = upper.history.names[slot]
            assert block_hash is not None
            if below.knows(block_hash):  # it lies below already, or is on its way
                self._give_up(upper)
                continue
            if not below.num_free and not self._give_up(below):
                return None
            target = below.reserve(block_hash, *upper.standing(slot))
            assert target is not None
            upper.begin_read(slot, used=False)
            self._num_demotions += 1
            return Swap(
                block_hash=block_hash,
                generation=generation,
                source=self._address(upper.tier, slot),
                target=self._address(below.tier, target),
            )
        return None

    # -- up ------------------------------------------------------------------------------------

    def locate(self, hashes: Sequence[bytes], start: int) -> list[tuple[TierTable, int]]:
        """Where the blocks from `start` on lie below memory, up to the first that is nowhere."""
        found = []
        for block_hash in hashes[start:]:
            places = ((table, table.lookup(block_hash)) for table in self._lower)
            place = next(((t, slot) for t, slot in places if slot is not None), None)
            if place is None:
                break
            found.append(place)
        return found

    def swap_in(
        self,
        hashes: Sequence[bytes],
        found: Sequence[tuple[TierTable, int]],
        blocks: Sequence[int],
        generation: int,
        for_prompt: bool,
    ) -> list[Swap]:
        """Begin copies of these slots into the caller's blocks."""
        swaps = []
        for block_hash, (table, slot), block in zip(hashes, found, blocks, strict=True):
            assert not self._pool.is_named(block), (
                f"block {block} is history and may not be written"
            )
            table.begin_read(slot)
            swaps.append(
                Swap(
                    block_hash=block_hash,
                    generation=generation,
                    source=self._address(table.tier, slot),
                    target=self._address(Tier.MEMORY, block),
                    for_prompt=for_prompt,
                )
            )
        return swaps

    # -- ends ----------------------------------------------------------------------------------

    def end(self, swap: Swap, checksum: int | None) -> bool:
        """A copy has ended; True when its target holds what it should."""
        if swap.is_load:
            return self._end_load(swap, checksum)
        target = self._tables[swap.target.tier]
        source_is_true = checksum is not None
        if swap.source.tier is Tier.MEMORY:
            self._pool.release(swap.source.slot, used=False)
        else:
            source_is_true = self._end_demotion(swap, checksum)
        if checksum is None or not source_is_true:
            target.fail(swap.target.slot)
            self._drop(swap.target.tier, swap.target.slot, swap.block_hash)
            return False
        if not target.seal(swap.target.slot, checksum):
            self._drop(swap.target.tier, swap.target.slot, swap.block_hash)
            return False
        if swap.source.tier is Tier.MEMORY:
            self._pool.went_down(swap.source.slot, swap.block_hash)
        self._reprice(swap.block_hash)
        return True

    def _end_demotion(self, swap: Swap, checksum: int | None) -> bool:
        """The upper tier lets go of what went down, or of what was not what it should be."""
        self._num_demotions -= 1
        table, slot = self._tables[swap.source.tier], swap.source.slot
        is_true = _is_true(table, slot, checksum)
        table.num_corrupt += checksum is not None and not is_true
        self._end_read(table, slot, swap.block_hash, keep=False)
        table.num_evicted += 1
        return is_true

    def _end_load(self, swap: Swap, checksum: int | None) -> bool:
        table, slot = self._tables[swap.source.tier], swap.source.slot
        is_true = _is_true(table, slot, checksum)
        table.num_hits += is_true and swap.for_prompt
        table.num_misses += not is_true
        table.num_corrupt += checksum is not None and not is_true
        self._end_read(table, slot, swap.block_hash, keep=is_true)
        return is_true

    def _end_read(self, table: TierTable, slot: int, block_hash: bytes, *, keep: bool) -> None:
        is_free = False
        if not keep and table.lookup(block_hash) == slot:
            table.drop(slot)
        is_free = table.end_read(slot)
        if is_free:
            self._drop(table.tier, slot, block_hash)

    def _reprice(self, block_hash: bytes) -> None:
        block = self._pool.lookup(block_hash)
        if block is not None:
            self._pool.history.reprice(block)

    # -- the whole -----------------------------------------------------------------------------

    def recover(self, tier: Tier, entries: Sequence[tuple[bytes, int]]) -> int:
        """Take in what an earlier life left; what there is no room for goes."""
        table, num_taken = self._tables.get(tier), 0
        for block_hash, checksum in entries:
            if table is not None and table.recover(block_hash, checksum):
                num_taken += 1
            elif table is None or not table.knows(block_hash):
                self._drop(tier, NO_SLOT, block_hash)
        return num_taken

    def drop(self, block_hash: bytes) -> None:
        """No lower tier offers this name any more."""
        for table in self._lower:
            slot = table.lookup(block_hash)
            if slot is not None and table.drop(slot):
                self._drop(table.tier, slot, block_hash)

    def clear(self) -> None:
        """Every lower tier is empty, or will be once its copies have ended."""
        self._waiting = {}
        for table in self._lower:
            for slot, block_hash in table.clear():
                self._drop(table.tier, slot, block_hash)

    def _drop(self, tier: Tier, slot: int, block_hash: bytes) -> None:
        self._drops.append((self._address(tier, slot), block_hash))

    def take_drops(self) -> list[tuple[Address, bytes]]:
        """What the host must forget, in order."""
        drops, self._drops = self._drops, []
        return drops


def _is_true(table: TierTable, slot: int, checksum: int | None) -> bool:
    """What was read is what was written there."""
    return checksum is not None and checksum == table.checksum(slot)
