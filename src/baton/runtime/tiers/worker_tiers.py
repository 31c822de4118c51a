"""The lower tiers of one life of a worker: opened at its start, closed before its memory."""

import asyncio
from collections.abc import Callable
from typing import Self

from baton.core.cache import Tier
from baton.core.effects import TierOrder
from baton.core.events import Event, TierRecovered
from baton.core.layout import ModelInfo
from baton.errors import ConfigError
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.faults import death_in_load
from baton.runtime.spec import WorkerSpec
from baton.runtime.staging_thread import Stager
from baton.runtime.tiers.capacity import TierCapacity, tier_capacity
from baton.runtime.tiers.copier import TierCopier
from baton.runtime.tiers.disk_tier import DiskTier
from baton.runtime.tiers.host_tier import HostTier
from baton.runtime.tiers.memory_tier import MemoryTier
from baton.runtime.tiers.tier_thread import TierThread


class WorkerTiers:
    """What a worker host needs of its tiers; without any, there is no thread and no file."""

    def __init__(self, capacity: TierCapacity) -> None:
        self.capacity = capacity
        self.recovered: TierRecovered | None = None
        """What an earlier life left on the disk, for the node; None is nothing."""
        self._copier: TierCopier | None = None
        self._thread: TierThread | None = None
        self._num_removed = 0

    @classmethod
    def open(
        cls,
        spec: WorkerSpec,
        model: ModelInfo,
        memory: Bytes,
        num_blocks: int,
        stager: Stager | None,
        post: Callable[[Event], None],
        lost: Callable[[str], None],
    ) -> Self:
        """Open the tiers that the configuration asks for, and read what the disk still has.

        `memory` is the pool or its mirror. Raises ConfigError when a tier cannot be had.
        """
        cache = spec.config.cache
        self = cls(tier_capacity(cache, model.layout))
        capacity = self.capacity
        host = disk = None
        if capacity.num_disk_blocks:
            disk = DiskTier(
                cache.disk_dir,
                spec.worker_id,
                model,
                capacity.num_disk_blocks,
                driver=cache.disk_driver,
            )
            found = disk.recover()
            self._num_removed = found.num_removed
            if found.entries or found.generation:
                self.recovered = TierRecovered(
                    tier=Tier.DISK, generation=found.generation, entries=found.entries
                )
        try:
            if capacity.num_host_blocks:
                host = HostTier(spec.worker_id, spec.epoch, model.layout, capacity.num_host_blocks)
        except ConfigError:
            if disk is not None:
                disk.close()
            raise
        if host is not None or disk is not None:
            view = MemoryTier(memory, model.layout, num_blocks, stager)
            on_load = death_in_load(spec.faults, spec.worker_id)
            self._copier = TierCopier(view, host, disk, on_load)
            loop = asyncio.get_running_loop()
            nbytes = model.layout.bytes_per_block
            self._thread = TierThread(self._copier, nbytes, loop, post, lost)
        return self

    def perform(self, effect: TierOrder) -> None:
        """Queue it behind what was ordered before."""
        assert self._thread is not None, "the node knows that there is no lower tier"
        self._thread.submit(effect)

    def counters(self) -> dict[str, int]:
        """Named outcomes so far."""
        if self._thread is None:
            return {}
        num_recovered = len(self.recovered.entries) if self.recovered else 0
        return {
            **self._thread.counters,
            "tier_recovered_files": num_recovered,
            "tier_removed_files": self._num_removed,
        }

    def close(self) -> None:
        """End the copies, then let the memory go: call it before the arena is closed."""
        if self._thread is not None:
            self._thread.close()
        if self._copier is not None:
            self._copier.close()
