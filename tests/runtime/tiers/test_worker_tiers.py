"""The tiers of one life of a worker: as configured, staged where the pool is private, closed."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runtime.tiers.tier_rig import LAYOUT, NUM_BLOCKS, model, name, order

from baton.config import load_config
from baton.core.cache import Tier
from baton.core.effects import ClearTiers, CopyBlock
from baton.core.events import BlockCopied
from baton.core.ids import Role
from baton.engine.pool import Pool
from baton.engine.staging import Staging
from baton.errors import ConfigError
from baton.runtime.dataplane.segments import SHM_DIR
from baton.runtime.issuer_key import mint_signer, published
from baton.runtime.spec import WorkerSpec
from baton.runtime.tiers import WorkerTiers

BLOCK = LAYOUT.bytes_per_block
MEMORY, HOST, DISK = Tier.MEMORY, Tier.HOST, Tier.DISK


def spec(*overrides: str, epoch: int = 1) -> WorkerSpec:
    return WorkerSpec(
        worker_id="w0",
        ordinal=0,
        epoch=epoch,
        role=Role.DECODE,
        cores=(),
        model_path="",
        endpoint="",
        router_endpoint="",
        issuer=published(mint_signer()),
        config=load_config(None, list(overrides)),
    )


def disk(folder: Path, driver: str = "files") -> list[str]:
    nbytes = f"cache.disk_nbytes={4 * (BLOCK + 200)}"
    return [f"cache.disk_dir={folder}", nbytes, f"cache.disk_driver={driver}"]


class Life:
    """One life: its pool, its tiers, and what they said."""

    def __init__(self, life: WorkerSpec, stager=None, memory=None) -> None:
        if memory is None:
            memory = np.random.default_rng(life.epoch).integers(
                0, 256, NUM_BLOCKS * BLOCK, dtype=np.uint8
            )
        self.memory = memory
        self.answers: list[BlockCopied] = []
        self.tiers = WorkerTiers.open(
            life, model(), memory, NUM_BLOCKS, stager, self.answers.append, pytest.fail
        )

    async def perform(self, *effects: CopyBlock) -> None:
        wanted = len(self.answers) + len(effects)
        for effect in effects:
            self.tiers.perform(effect)
        async with asyncio.timeout(10):
            while len(self.answers) < wanted:
                await asyncio.sleep(0.002)

    def block(self, number: int) -> bytes:
        return self.memory.reshape(LAYOUT.num_layers, NUM_BLOCKS, -1)[:, number].tobytes()


async def test_the_next_life_finds_what_the_last_one_stored(tmp_path, driver):
    first = Life(spec(*disk(tmp_path, driver)))
    await first.perform(
        order(1, (MEMORY, 0), (DISK, 0)),
        order(2, (MEMORY, 1), (DISK, 1)),
    )
    assert first.tiers.recovered is None
    wanted = {name(n): (first.answers[n - 1].checksum, first.block(n - 1)) for n in (1, 2)}
    first.tiers.close()
    second = Life(spec(*disk(tmp_path, driver), epoch=2))
    found = second.tiers.recovered
    assert found is not None and (found.tier, found.generation) == (DISK, 1)
    assert dict(found.entries) == {key: checksum for key, (checksum, _) in wanted.items()}
    assert second.tiers.counters() == {"tier_recovered_files": 2, "tier_removed_files": 0}
    await second.perform(order(2, (DISK, 0), (MEMORY, 5)))
    assert second.block(5) == wanted[name(2)][1]
    assert second.tiers.counters()["tier_disk_loads"] == 1
    second.tiers.perform(ClearTiers(generation=2))
    second.tiers.close()
    third = Life(spec(*disk(tmp_path), epoch=3))
    found = third.tiers.recovered
    assert found is not None and (found.generation, found.entries) == (2, ())
    assert third.tiers.counters()["tier_removed_files"] == 2
    third.tiers.close()


async def test_a_private_pool_is_reached_through_its_mirror(tmp_path, driver):
    pool = Pool(LAYOUT, NUM_BLOCKS)
    pool.tensor.copy_(torch.randn(pool.tensor.shape))
    mirror = np.zeros(NUM_BLOCKS * BLOCK, np.uint8)
    host = f"cache.host_nbytes={4 * BLOCK}"
    life = Life(spec(host, *disk(tmp_path, driver)), Staging(pool, mirror.data), mirror)
    wanted = pool.tensor[:, 2].clone()
    await life.perform(
        order(1, (MEMORY, 2), (HOST, 0)),
        order(1, (HOST, 0), (DISK, 0)),
        order(1, (DISK, 0), (MEMORY, 6)),
        order(1, (HOST, 0), (MEMORY, 7)),
    )
    assert [answer.error for answer in life.answers] == [""] * 4
    assert torch.equal(pool.tensor[:, 6], wanted) and torch.equal(pool.tensor[:, 7], wanted)
    life.tiers.close()


async def test_without_tiers_there_is_no_thread_no_segment_and_no_file(tmp_path):
    before = {path.name for path in SHM_DIR.iterdir()}
    life = Life(spec())
    assert (str(life.tiers.capacity), life.tiers.counters()) == ("", {})
    assert {path.name for path in SHM_DIR.iterdir()} - before == set()
    life.tiers.close()


async def test_a_host_tier_that_fails_gives_the_folder_back(tmp_path, driver):
    with pytest.raises(ConfigError, match=r"lower cache\.host_nbytes"):
        Life(spec(f"cache.host_nbytes={1 << 50}", *disk(tmp_path, driver)))
    Life(spec(*disk(tmp_path, driver))).tiers.close()
