"""One copy of a named block between two tiers of its owner."""

import msgspec

from baton.core.cache import Address, Tier


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that has begun: the source is pinned, the target is nobody else's."""

    block_hash: bytes
    generation: int
    """The cache's, when it began."""
    source: Address
    target: Address
    for_prompt: bool = True
    """Of a load: a prompt wanted the block, so it is a hit; else a copy or a preempted sequence."""

    @property
    def is_load(self) -> bool:
        """It brings a block up into memory."""
        return self.target.tier is Tier.MEMORY
