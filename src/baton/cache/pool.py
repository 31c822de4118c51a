"""A worker's K/V memory: allocation with prefix reuse over the block pool."""

from collections.abc import Sequence

from baton.cache.blocks import BlockPool
from baton.cache.prefix import block_hashes, chain_root
from baton.core.cache import CacheChange
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request


class MemPool:
    """Matches, pins, allocates and names the blocks of sequences."""

    def __init__(
        self, num_blocks: int, layout: KVLayout, identity: ModelIdentity, *, prefix_caching: bool
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.layout = layout
        self._identity = identity
        self._prefix_caching = prefix_caching

    def announce(self) -> None:
        """Somebody takes the changes from now on: note them."""
        self.pool.changes.is_enabled = True

    def take_changes(self) -> list[CacheChange]:
        """Names that a tier gained or lost since the last call; empty unless announced."""
        return self.pool.changes.take()

    def hashes(self, request: Request, token_ids: Sequence[int]) -> list[bytes]:
        """Names of the full blocks of `token_ids` under this request's tenant and salt."""
        root = chain_root(self._identity, self.layout, request.tenant_id, request.cache_salt)
        return block_hashes(root, token_ids, self.layout.block_size)

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

    def insert(self, block_table: Sequence[int], hashes: Sequence[bytes], count: int) -> None:
        """Publish the first `count` full blocks as history that later prompts may reuse."""
        if self._prefix_caching:
            for block, block_hash in zip(block_table[:count], hashes, strict=False):
                self.pool.name(block, block_hash)

    def free(self, block_table: Sequence[int]) -> None:
        """Drop a sequence's references, tail first so that prefixes outlive their suffixes."""
        for block in reversed(block_table):
            self.pool.release(block)

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
