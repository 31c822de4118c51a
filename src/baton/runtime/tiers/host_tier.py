"""The tier in DRAM: a segment of packed slots, one block each, gone with its worker."""

import numpy as np

from baton.core.layout import KVLayout
from baton.runtime.dataplane.arena import Arena, Bytes
from baton.runtime.tiers.miss import MissKind, TierMiss


class HostTier:
    """Slots of `bytes_per_block`, all layers of a block in a row.

    The segment is one like the worker's arena: unlinked by its worker at the end, and swept once
    that process is dead however it ended. Its pages are allocated at the start, so that no later
    store can fail or kill the process.
    """

    def __init__(self, worker_id: str, epoch: int, layout: KVLayout, num_slots: int) -> None:
        self._arena = Arena.create(
            f"host.{epoch}.{worker_id}",
            num_slots * layout.bytes_per_block,
            epoch=epoch,
            field="cache.host_nbytes",
        )
        shape = (num_slots, layout.num_layers, layout.layer_block_nbytes)
        nbytes = num_slots * layout.bytes_per_block
        self._slots = self._arena.buffer[:nbytes].reshape(shape)
        self._names: list[tuple[bytes, int, int] | None] = [None] * num_slots

    @property
    def segment(self) -> str:
        """Name of the segment in shared memory."""
        return self._arena.descriptor.name

    def layers(self, slot: int) -> Bytes:
        """A slot as `[layer][byte]`, all in a row."""
        layers: Bytes = self._slots[slot]
        return layers

    def check(self, slot: int, block_hash: bytes, generation: int) -> int:
        """The checksum that the slot was stored with.

        Raises TierMiss unless it holds this block of this generation.
        """
        name = self._names[slot]
        if name is None:
            raise TierMiss(MissKind.ABSENT, f"host slot {slot} holds nothing")
        if name[0] != block_hash:
            raise TierMiss(MissKind.FOREIGN, f"host slot {slot} holds {name[0].hex()}")
        if name[1] != generation:
            raise TierMiss(MissKind.STALE, f"host slot {slot} is of generation {name[1]}")
        return name[2]

    def name(self, slot: int, block_hash: bytes, generation: int, checksum: int) -> None:
        """The slot holds this block now: it was written to its end."""
        self._names[slot] = (block_hash, generation, checksum)

    def forget(self, slot: int) -> None:
        """The slot holds nothing any more; call it before it is written."""
        self._names[slot] = None

    def close(self) -> None:
        """Unmap and unlink the segment."""
        self._slots = np.empty((0, 1, 1), np.uint8)
        self._arena.close()
