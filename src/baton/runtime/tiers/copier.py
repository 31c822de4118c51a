"""Copies one block between two tiers of a worker, and sums its bytes on the way."""

from collections.abc import Callable

import numpy as np
import xxhash

from baton.core.cache import Tier
from baton.core.effects import CopyBlock, DropBlock
from baton.errors import LocalProtocolError
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.checksum import PIECE_NBYTES
from baton.runtime.tiers.disk_tier import DiskTier
from baton.runtime.tiers.host_tier import HostTier
from baton.runtime.tiers.memory_tier import MemoryTier
from baton.runtime.tiers.miss import MissKind, TierMiss


def is_load(effect: CopyBlock) -> bool:
    """Whether the block comes up, from a slower tier to a faster one."""
    return effect.target is Tier.MEMORY or effect.source is Tier.DISK


class TierCopier:
    """Called from one thread. `on_load` is called in each load, once its bytes have been moved."""

    def __init__(
        self,
        memory: MemoryTier,
        host: HostTier | None,
        disk: DiskTier | None,
        on_load: Callable[[], None] = lambda: None,
    ) -> None:
        self._memory = memory
        self._host = host
        self._disk = disk
        self._on_load = on_load

    def copy(self, effect: CopyBlock) -> int:
        """Copy a block and return the checksum of its bytes as read.

        Raises TierMiss for a source that must not be used, OSError where files cannot be.
        """
        expected = None
        if effect.source is Tier.HOST:
            expected = self._host_tier.check(
                effect.source_slot, effect.block_hash, effect.generation
            )
        elif effect.source is Tier.MEMORY:
            self._memory.fetch(effect.source_slot)
        if effect.target is Tier.HOST:
            self._host_tier.forget(effect.target_slot)
        total = self._move(effect)
        if is_load(effect):
            self._on_load()
        if expected not in (None, total):
            raise TierMiss(MissKind.CORRUPT, f"host slot {effect.source_slot} has changed")
        if effect.target is Tier.HOST:
            self._host_tier.name(effect.target_slot, effect.block_hash, effect.generation, total)
        elif effect.target is Tier.MEMORY:
            self._memory.settle(effect.target_slot)
        return total

    def _move(self, effect: CopyBlock) -> int:
        name, generation = effect.block_hash, effect.generation
        if effect.target is Tier.DISK:
            source = self._layers(effect.source, effect.source_slot)
            return self._disk_tier.store(name, generation, source)
        target = self._layers(effect.target, effect.target_slot)
        if effect.source is Tier.DISK:
            return self._disk_tier.load(name, generation, target)
        source = self._layers(effect.source, effect.source_slot)
        return _copy(target, source, packed=source if effect.source is Tier.HOST else target)

    def drop(self, effect: DropBlock) -> None:
        """Forget what a slot of a lower tier holds."""
        if effect.tier is Tier.HOST:
            self._host_tier.forget(effect.slot)
        elif effect.tier is Tier.DISK:
            self._disk_tier.remove(effect.block_hash)

    def raise_floor(self, generation: int) -> None:
        """What outlives the worker remembers that lower generations were cleared."""
        if self._disk is not None:
            self._disk.raise_floor(generation)

    def _layers(self, tier: Tier, slot: int) -> Bytes:
        return (self._memory if tier is Tier.MEMORY else self._host_tier).layers(slot)

    @property
    def _host_tier(self) -> HostTier:
        if self._host is None:
            raise LocalProtocolError("this worker has no host tier; cache.host_nbytes is 0")
        return self._host

    @property
    def _disk_tier(self) -> DiskTier:
        if self._disk is None:
            raise LocalProtocolError("this worker has no disk tier; cache.disk_dir is empty")
        return self._disk

    def close(self) -> None:
        """Let go of all memory and of the folder."""
        self._memory.close()
        for tier in (self._host, self._disk):
            if tier is not None:
                tier.close()


def _copy(target: Bytes, source: Bytes, packed: Bytes) -> int:
    """Copy `[layer][byte]` and return the checksum of `packed`, the side that lies in a row.

    Scattered layers move in one call of numpy, and a piece is summed while it is in the cache: a
    call per layer would cost a third of the whole, and hold the interpreter lock meanwhile.
    """
    state = xxhash.xxh3_64()
    step = max(1, PIECE_NBYTES // source.shape[1])
    for first in range(0, len(source), step):
        piece = slice(first, first + step)
        np.copyto(target[piece], source[piece])
        state.update(packed[piece].data)
    return int(state.intdigest())
