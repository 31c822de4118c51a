"""MemPool: one worker's K/V memory over its tiers, after MemServe's API (0x09A)."""

from collections.abc import Sequence

from baton.cache.blocks import BlockPool
from baton.cache.eviction import POLICIES
from baton.cache.history import Price
from baton.cache.prefix import block_names
from baton.cache.swap import Swap
from baton.cache.swapping import Swapping
from baton.cache.tier import TierTable
from baton.core.cache import Address, CacheChange, Tier
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request


class MemPool:
    """Active blocks are private to one sequence and may grow; historical ones are named, shared
    and never written. `insert` is the only step from the one to the other.

    The calls of the paper are `allocate`, `free`, `insert`, `match`, `delete`, `swap_out` and
    `swap_in`; `transfer` and `transfer_with_insert` are transactions between two nodes.
    """

    def __init__(
        self,
        num_blocks: int,
        layout: KVLayout,
        identity: ModelIdentity,
        *,
        prefix_caching: bool,
        owner: str = "",
        epoch: int = 0,
        eviction: str = "lru",
        num_host_blocks: int = 0,
        num_disk_blocks: int = 0,
    ) -> None:
        policy = POLICIES[eviction]
        self.pool = BlockPool(num_blocks, policy())
        self.layout = layout
        self.generation = 0
        """What was named under a lower one is gone, in every tier."""
        self.num_asked = 0
        """Blocks that prompts looked for, so far; see `count_prompt`."""
        self.num_hits = 0
        """Of those, blocks that were found in memory."""
        sizes = {Tier.HOST: num_host_blocks, Tier.DISK: num_disk_blocks}
        self.lower = tuple(
            TierTable(tier, size, policy(), self.pool.changes)
            for tier, size in sizes.items()
            if size and prefix_caching
        )
        """The tiers below memory, fastest first."""
        self._swapping = Swapping(self.pool, self.lower, self.address)
        self._identity = identity
        self._prefix_caching = prefix_caching
        self._owner, self._epoch = owner, epoch

    # -- what is held --------------------------------------------------------------------------

    def announce(self) -> None:
        """Somebody takes the changes from now on: note them."""
        self.pool.changes.is_enabled = True

    def take_changes(self) -> list[CacheChange]:
        """Names that a tier gained or lost since the last call; empty unless announced."""
        return self.pool.changes.take()

    def address(self, tier: Tier, slot: int) -> Address:
        """Where a slot of this worker's tier lies, for everybody."""
        return Address(self._owner, self._epoch, tier, slot)

    def price_by(self, price: Price, price_below: Price) -> None:
        """What losing a block from memory, or from a lower tier, would cost."""
        self.pool.history.price = price
        for table in self.lower:
            table.history.price = price_below

    def hashes(
        self, request: Request, token_ids: Sequence[int], known: Sequence[bytes] = ()
    ) -> list[bytes]:
        """Names of the full blocks of `token_ids`; see `block_names`."""
        return block_names(self._identity, self.layout, request, token_ids, known)

    # -- active blocks -------------------------------------------------------------------------

    def allocate(self, block_table: list[int], num_tokens: int) -> bool:
        """Extend a table to hold `num_tokens` rows; False (and nothing taken) if it cannot."""
        missing = self.layout.num_blocks(num_tokens) - len(block_table)
        if missing <= 0:
            return True
        blocks = self.pool.allocate(missing)
        if blocks is None:
            return False
        block_table.extend(blocks)
        return True

    def free(self, block_table: Sequence[int]) -> None:
        """Drop a sequence's references, tail first so that prefixes outlive their suffixes."""
        for block in reversed(block_table):
            self.pool.release(block)

    def is_active(self, block_table: Sequence[int], start: int, end: int) -> bool:
        """Rows `start .. end-1` may be written: nobody else can read their blocks by name."""
        size = self.layout.block_size
        written = block_table[start // size : (end - 1) // size + 1]
        return not any(map(self.pool.is_named, written))

    def quarantine(self, block_table: Sequence[int], exposed: Sequence[int]) -> None:
        """Set aside what a peer may still write; the rest of the table goes back now."""
        written = set(exposed)
        self.free([block for block in block_table if block not in written])
        for block in exposed:
            self.pool.quarantine(block)

    def end_quarantine(self, exposed: Sequence[int]) -> None:
        """Nobody can write these blocks any more: they are free."""
        for block in exposed:
            self.pool.end_quarantine(block)

    # -- history -------------------------------------------------------------------------------

    def insert(self, block_table: Sequence[int], hashes: Sequence[bytes], count: int) -> None:
        """Publish the first `count` full blocks as history that later prompts may reuse."""
        if not self._prefix_caching:
            return
        parent = None
        for depth, block_hash in enumerate(hashes[:count]):
            if not self.pool.name(block_table[depth], block_hash, parent, depth):
                return  # older than the present generation, and all that was computed from it
            parent = block_hash

    def match(self, hashes: Sequence[bytes], max_blocks: int) -> list[int]:
        """Pin the longest visible prefix, at most `max_blocks` blocks, and return it."""
        pinned: list[int] = []
        if not self._prefix_caching:
            return pinned
        for block_hash in hashes[:max_blocks]:
            block = self.pool.lookup(block_hash)
            if block is None:
                break
            self.pool.acquire(block)
            pinned.append(block)
        return pinned

    def count_prompt(self, num_asked: int, num_hits: int) -> None:
        """A prompt that is computed here has looked for so many blocks, and took so many.

        A match alone does not count: the same prompt may have to try again, and copies of history
        and reservations match, too.
        """
        self.num_asked += num_asked
        self.num_hits += num_hits

    def delete(self, hashes: Sequence[bytes]) -> int:
        """Forget these names, the last one first, in every tier; returns how many memory lost.

        What another prompt continues is left, and so is everything before it.
        """
        num_forgotten = 0
        for block_hash in reversed(hashes):
            block = self.pool.lookup(block_hash)
            if block is not None:
                if self.pool.history.has_children(block):
                    break
                self.pool.unname(block)
                num_forgotten += 1
            self._swapping.drop(block_hash)
        return num_forgotten

    def clear(self, generation: int) -> None:
        """No history of a lower generation is found any more, in any tier.

        Blocks that nobody reads are free now. The others lose their names and never get one again:
        their rows may rest on what is gone.
        """
        assert generation > self.generation
        self.generation = generation
        self.pool.clear()
        self._swapping.clear()
        self.pool.changes.seal()

    # -- tiers ---------------------------------------------------------------------------------

    def locate(self, hashes: Sequence[bytes], start: int) -> list[tuple[TierTable, int]]:
        """Where the blocks from `start` on lie below memory, up to the first that is nowhere."""
        return self._swapping.locate(hashes, start)

    def swap_out(self, max_swaps: int) -> list[Swap]:
        """Begin copies downwards, at most so many: what has to make room first, then new history.

        Blocks stay pinned, and slots taken, until `end_swap`.
        """
        return self._swapping.swap_out(max_swaps, self.generation)

    def swap_in(
        self,
        hashes: Sequence[bytes],
        found: Sequence[tuple[TierTable, int]],
        blocks: Sequence[int],
        *,
        for_prompt: bool = True,
    ) -> list[Swap]:
        """Begin copies of what `locate` found into these blocks, which are the caller's own."""
        return self._swapping.swap_in(hashes, found, blocks, self.generation, for_prompt)

    def end_swap(self, swap: Swap, checksum: int | None) -> bool:
        """A copy has ended, without a checksum if it failed. False: its target holds nothing.

        What came up is true if it sums to what went down; else its slot is dropped.
        """
        return self._swapping.end(swap, checksum)

    def recover(self, tier: Tier, entries: Sequence[tuple[bytes, int]]) -> int:
        """Take in what an earlier life left in a tier: names and checksums; returns how many."""
        return self._swapping.recover(tier, entries)

    def take_drops(self) -> list[tuple[Address, bytes]]:
        """Slots, and the names they had, that the host must forget before anything else."""
        return self._swapping.take_drops()

    @property
    def num_skipped_stores(self) -> int:
        """Blocks of history that were not copied down because too many waited."""
        return self._swapping.num_skipped
