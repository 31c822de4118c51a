"""Words of the distributed K/V pool: tiers, addresses, events of what is held (0x09, 0x09A)."""

from enum import StrEnum

import msgspec


class Tier(StrEnum):
    """Where a block of history lies at its owner, fastest first."""

    MEMORY = "memory"
    """The worker's own pool, which its engine reads."""
    HOST = "host"
    """DRAM of the worker's host, in shared memory."""
    DISK = "disk"
    """Files, which outlive the worker."""


class Milestone(StrEnum):
    """How much of the state of finished work stays reusable, each including the ones before it.

    PREFILL, DECODE and BIDIRECTIONAL are the three steps of 0x09D after NONE. PROMPT lies between
    the first two: decode workers keep the rows of prompts but not those of answers, so that reuse
    is bit-equal to a recompute.
    """

    NONE = "none"
    PREFILL = "prefill"
    PROMPT = "prompt"
    DECODE = "decode"
    BIDIRECTIONAL = "bidirectional"

    @property
    def decode_keeps_prompts(self) -> bool:
        """Decode workers name the blocks of prompts and are sent only what they lack."""
        return self not in (Milestone.NONE, Milestone.PREFILL)

    @property
    def decode_keeps_answers(self) -> bool:
        """Decode workers also name the blocks of what they generated."""
        return self in (Milestone.DECODE, Milestone.BIDIRECTIONAL)


class CacheChange(msgspec.Struct, frozen=True, array_like=True):
    """One change of what a worker holds: these names are in that tier now, or not any more."""

    stored: bool
    tier: Tier
    hashes: tuple[bytes, ...]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a named block can be read: whose, in which life, in which tier, of which generation.

    `generation` is the cache's own: an operator who clears the cache raises it, and whatever was
    claimed under a lower one is gone everywhere at once.
    """

    owner: str
    epoch: int
    tier: Tier
    generation: int


class Address(msgspec.Struct, frozen=True, array_like=True):
    """Physical location of one block: whose, in which life, where. It says nothing of its content.

    A slot of MEMORY is a pool block; slots of other tiers count from 0 in their own space.
    """

    owner: str
    epoch: int
    tier: Tier
    slot: int


class TierLoad(msgspec.Struct, frozen=True, array_like=True):
    """One tier of one worker at one moment."""

    tier: Tier
    num_blocks: int
    """How many it can hold."""
    num_named: int
    """Blocks of history in it."""
    num_reclaimable: int
    """Of those, what could be given up now: not pinned and not in flight."""
    num_hits: int
    """Blocks that were found here, so far."""
    bytes_per_us: float = 0.0
    """Measured rate of bringing blocks from here into memory; 0 until measured."""
