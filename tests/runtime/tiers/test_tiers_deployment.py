"""Real processes whose pools are too small: prompts come back from host and disk, and are right."""

import os
import signal
from pathlib import Path

import pytest
from tests.runtime.real_deployment import START_S, Served, serving

from baton.core.ids import Role
from baton.errors import BatonError
from baton.runtime.dataplane.nixl import is_installed

POOL = ["worker.kv_nbytes=3_000_000", "model.max_model_len=1024", "worker.growth_tokens=16"]
"""183 blocks of the tiny model."""
PROMPTS = [f"prompt number {n}: " + "the baton goes from hand to hand " * 20 for n in range(8)]
"""About 42 blocks each: all of them together do not fit."""


def tiers(folder: Path, *, host: bool = True, driver: str = "files") -> list[str]:
    disk = [
        f"cache.disk_dir={folder}",
        "cache.disk_nbytes=10_000_000",
        f"cache.disk_driver={driver}",
    ]
    return [*POOL, *disk, *(["cache.host_nbytes=1_000_000"] if host else [])]


async def ask_all(served: Served) -> list[str]:
    """One after another, so that each finds what the ones before have left."""
    found = []
    for prompt in PROMPTS:
        answer = await served.stream({"prompt": prompt, "max_tokens": 8})
        assert not answer.error
        found.append(answer.text)
    return found


async def reference() -> list[str]:
    split = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"]
    async with serving(*split) as served:
        return await ask_all(served)


def loads(served: Served, tier: str) -> int:
    return sum(served.counter(w, f"tier_{tier}_loads") for w in ("prefill-0", "decode-1"))


@pytest.mark.slow
@pytest.mark.parametrize("staging", ["auto", "always"])
async def test_what_left_memory_comes_back_from_host_and_disk(tmp_path, staging):
    wanted = await reference()
    async with serving(*tiers(tmp_path), f"transfer.staging={staging}") as served:
        assert await ask_all(served) == wanted
        assert await ask_all(served) == wanted
        assert await ask_all(served) == wanted
        assert await served.until_idle(10) == []
        assert loads(served, "host") > 0 and loads(served, "disk") > 0
        for worker in ("prefill-0", "decode-1"):
            for name in ("corrupt", "truncated", "foreign", "stale", "failed_loads"):
                assert served.counter(worker, f"tier_{name}") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decode-1", "prefill-0"]


@pytest.mark.slow
@pytest.mark.parametrize("plane", ["shm", "nixl"])
async def test_blocks_come_back_from_files_that_nixl_moves(tmp_path, plane):
    if not is_installed():
        pytest.skip("NIXL is not installed: pip install 'kvbaton[nixl]'")
    wanted = await reference()
    setting = f"transfer.data_plane={plane}"
    async with serving(*tiers(tmp_path, host=False, driver="nixl"), setting) as served:
        assert await ask_all(served) == wanted
        assert await ask_all(served) == wanted
        assert await served.until_idle(10) == []
        assert loads(served, "disk") > 0
        for name in ("corrupt", "truncated", "foreign", "stale", "failed_loads", "failed_stores"):
            assert served.counter("prefill-0", f"tier_{name}") == 0
        # One library serves both: the agent of the files must not spoil the lanes of the plane.
        assert (served.counter("prefill-0", "plane_orders_cma") > 0) == (plane == "nixl")


@pytest.mark.slow
async def test_a_killed_worker_finds_its_disk_tier_again(tmp_path):
    wanted = await reference()
    async with serving(*tiers(tmp_path, host=False)) as served:
        assert await ask_all(served) == wanted
        view = served.view("prefill-0")
        assert view.info.role is Role.PREFILL
        os.kill(view.info.pid, signal.SIGKILL)
        await served.until_replaced("prefill-0", view.info.epoch, START_S)
        assert await served.until_idle(10) == []
        found = served.counter("prefill-0", "tier_recovered_files")
        assert found > 0
        assert await ask_all(served) == wanted
        assert await served.until_idle(10) == []
        assert served.counter("prefill-0", "tier_disk_loads") > 0
    async with serving(*tiers(tmp_path, host=False)) as served:
        assert await ask_all(served) == wanted, "and so does the next deployment"
        assert await served.until_idle(10) == []
        assert loads(served, "disk") > 0


@pytest.mark.slow
async def test_damaged_files_change_no_answer(tmp_path):
    wanted = await reference()
    async with serving(*tiers(tmp_path, host=False)) as served:
        assert await ask_all(served) == wanted
        files = sorted(tmp_path.glob("*/*.kv"))
        assert len(files) > 6
        for number, path in enumerate(files):
            data = bytearray(path.read_bytes())
            match number % 3:
                case 0:
                    path.write_bytes(data[: len(data) // 2])
                case 1:
                    data[-1 - number] ^= 4
                    path.write_bytes(data)
                case 2:
                    path.unlink()
        assert await ask_all(served) == wanted
        assert await served.until_idle(10) == []
        workers = ("prefill-0", "decode-1")
        misses = {
            name: sum(served.counter(worker, f"tier_{name}") for worker in workers)
            for name in ("truncated", "corrupt", "absent")
        }
        assert sum(misses.values()) > 0, misses


@pytest.mark.slow
async def test_a_directory_of_another_deployment_is_refused(tmp_path):
    async with serving(*tiers(tmp_path)):
        with pytest.raises(BatonError, match=r"cache\.disk_dir .* is in use by process \d+; give"):
            async with serving(*tiers(tmp_path)):
                pytest.fail("two deployments share a folder")
