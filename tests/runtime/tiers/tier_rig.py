"""Tiers over plain memory: a pool of random bytes, a host tier and a disk tier."""

import hashlib
from pathlib import Path

import numpy as np

from baton.core.cache import Tier
from baton.core.effects import CopyBlock
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.runtime.tiers.copier import TierCopier
from baton.runtime.tiers.disk_tier import DiskTier
from baton.runtime.tiers.file_mover import Driver
from baton.runtime.tiers.host_tier import HostTier
from baton.runtime.tiers.memory_tier import MemoryTier

LAYOUT = KVLayout(num_layers=3, num_kv_heads=2, head_dim=8, block_size=4)
NUM_BLOCKS, NUM_SLOTS = 8, 4


def model(layout: KVLayout = LAYOUT, checkpoint: str = "c", **changes: object) -> ModelInfo:
    """What a worker knows of its model."""
    identity = ModelIdentity(model="rig", checkpoint_hash=checkpoint, tokenizer_hash="t")
    fields = {"name": "rig", "max_model_len": 64, "vocab_size": 100, "eos_token_ids": ()}
    return ModelInfo(**{**fields, "identity": identity, "layout": layout, **changes})


def name(number: int) -> bytes:
    """The name of a block."""
    return hashlib.blake2b(b"%d" % number, digest_size=16).digest()


class TierRig:
    """One worker's memory and its lower tiers."""

    def __init__(
        self,
        folder: Path,
        max_blocks: int = NUM_SLOTS,
        *,
        driver: Driver = "files",
        **copier: object,
    ) -> None:
        self.pool = np.random.default_rng(7).integers(
            0, 256, NUM_BLOCKS * LAYOUT.bytes_per_block, dtype=np.uint8
        )
        self.host = HostTier("w0", 1, LAYOUT, NUM_SLOTS)
        self.disk = DiskTier(str(folder), "w0", model(), max_blocks, driver=driver)
        self.folder = folder / "w0"
        memory = MemoryTier(self.pool, LAYOUT, NUM_BLOCKS)
        self.copier = TierCopier(memory, self.host, self.disk, **copier)

    def block(self, number: int) -> bytes:
        """All layers of a pool block, in a row."""
        shape = (LAYOUT.num_layers, NUM_BLOCKS, LAYOUT.layer_block_nbytes)
        return self.pool.reshape(shape)[:, number].tobytes()

    def file(self, number: int) -> Path:
        """Where a named block lies on disk."""
        return self.folder / f"{name(number).hex()}.kv"

    def close(self) -> None:
        """Give everything back."""
        self.copier.close()


def order(
    number: int,
    source: tuple[Tier, int],
    target: tuple[Tier, int],
    *,
    generation: int = 1,
    copy_id: int = 0,
) -> CopyBlock:
    """Copy the block of that name between two places."""
    return CopyBlock(
        copy_id=copy_id,
        block_hash=name(number),
        generation=generation,
        source=source[0],
        source_slot=source[1],
        target=target[0],
        target_slot=target[1],
    )
