"""The thread between tiers: everything in order, one answer per copy, nothing after its end."""

import asyncio
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.runtime.tiers.tier_rig import LAYOUT, NUM_BLOCKS, TierRig, name, order

from baton.core.cache import Tier
from baton.core.effects import CopyBlock, DropBlock
from baton.core.events import BlockCopied
from baton.runtime.faults import FaultSpec, death_in_load
from baton.runtime.tiers.tier_thread import TierThread

MEMORY, HOST, DISK = Tier.MEMORY, Tier.HOST, Tier.DISK
SECONDS = 10.0


class Rig(TierRig):
    """A rig with its thread and the answers so far."""

    def __init__(self, folder, **copier: object) -> None:
        super().__init__(folder, **copier)
        self.answers: list[BlockCopied] = []
        self.lost: list[str] = []
        loop = asyncio.get_running_loop()
        self.thread = TierThread(
            self.copier, LAYOUT.bytes_per_block, loop, self.answers.append, self.lost.append
        )

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(self.answers) < count:
                await asyncio.sleep(0.002)

    def close(self) -> None:
        self.thread.close()
        super().close()


@pytest.fixture
async def rig(tmp_path, driver):
    made = Rig(tmp_path, driver=driver)
    made.driver = driver
    yield made
    made.close()
    assert made.lost == []


async def test_copies_and_drops_happen_in_order_and_every_copy_is_answered(rig):
    wanted = rig.block(0)
    jobs = [
        order(1, (MEMORY, 0), (DISK, 0), copy_id=1),
        DropBlock(tier=DISK, slot=0, block_hash=name(1)),
        order(1, (MEMORY, 0), (DISK, 2), copy_id=2),
        order(1, (MEMORY, 1), (HOST, 0), copy_id=3),
        order(1, (DISK, 2), (MEMORY, 7), copy_id=4),
        order(1, (DISK, 2), (HOST, 1), copy_id=5),
        order(5, (DISK, 3), (MEMORY, 6), copy_id=6),
        order(1, (HOST, 1), (MEMORY, 6), copy_id=7, generation=2),
    ]
    for job in jobs:
        rig.thread.submit(job)
    await rig.until(7)
    assert [answer.copy_id for answer in rig.answers] == [1, 2, 3, 4, 5, 6, 7]
    good, bad = rig.answers[:5], rig.answers[5:]
    assert all(not a.error and a.duration_us > 0 for a in good)
    assert {a.nbytes for a in good} == {LAYOUT.bytes_per_block}
    assert good[0].checksum == good[1].checksum == good[3].checksum == good[4].checksum
    assert good[2].checksum != good[0].checksum
    assert [a.error.partition(":")[0] for a in bad] == ["absent", "stale"]
    assert rig.block(7) == wanted
    assert rig.thread.counters == {
        "tier_disk_stores": 2,
        "tier_host_stores": 1,
        "tier_disk_loads": 2,
        "tier_absent": 1,
        "tier_stale": 1,
    }


@contextmanager
def full_disk(nbytes: int) -> Iterator[None]:
    """No file of this process may grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_refuses_is_an_error_of_the_copy_and_leaves_nothing(rig):
    with full_disk(300):
        rig.thread.submit(order(1, (MEMORY, 0), (DISK, 0), copy_id=1))
        await rig.until(1)
    refusal = {
        "files": "OSError: [Errno 27] File too large",
        "nixl": "OSError: NIXL wrote no block",
    }
    assert rig.answers[0].error.startswith(refusal[rig.driver])
    assert [path.name for path in rig.folder.iterdir()] == ["lock"]
    rig.thread.submit(order(1, (MEMORY, 0), (DISK, 0), copy_id=2))
    await rig.until(2)
    assert rig.answers[1].error == ""
    rig.folder.rename(rig.folder.with_name("moved"))
    rig.thread.submit(order(2, (MEMORY, 0), (DISK, 1), copy_id=3))
    rig.thread.submit(order(1, (DISK, 0), (MEMORY, 1), copy_id=4))
    await rig.until(4)
    assert "No such file" in rig.answers[2].error and "absent" in rig.answers[3].error
    assert rig.thread.counters["tier_failed_stores"] == 2
    assert rig.lost == []


async def test_after_its_end_no_byte_moves(tmp_path, driver):
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(SECONDS)

    rig = Rig(tmp_path, driver=driver, on_load=hold)
    rig.thread.submit(order(1, (MEMORY, 0), (HOST, 0), copy_id=1))
    rig.thread.submit(order(1, (HOST, 0), (MEMORY, 1), copy_id=2))
    for block in range(2, NUM_BLOCKS):
        rig.thread.submit(order(1, (HOST, 0), (MEMORY, block), copy_id=10 + block))
    rig.thread.submit(DropBlock(tier=HOST, slot=0, block_hash=name(1)))
    assert await asyncio.to_thread(entered.wait, SECONDS)
    before = rig.pool.copy()
    closing = asyncio.create_task(asyncio.to_thread(rig.close))
    await asyncio.sleep(0.05)
    leave.set()
    await closing
    assert (rig.pool == before).all(), "the load that ran was the last to touch memory"
    await asyncio.sleep(0)
    assert [answer.copy_id for answer in rig.answers] == [1, 2]


async def test_an_error_that_no_tier_foresaw_ends_one_copy_only(rig):
    rig.thread.submit(order(1, (MEMORY, NUM_BLOCKS), (HOST, 0), copy_id=1))
    short = CopyBlock(
        copy_id=2,
        block_hash=b"short",
        generation=1,
        source=MEMORY,
        source_slot=0,
        target=DISK,
        target_slot=0,
    )
    rig.thread.submit(short)
    rig.thread.submit(order(1, (MEMORY, 0), (HOST, 0), copy_id=3))
    await rig.until(3)
    assert rig.answers[0].error.startswith("IndexError")
    assert "a block name of 5 bytes" in rig.answers[1].error
    assert rig.answers[2].error == ""


def test_a_worker_can_be_told_to_die_in_the_middle_of_a_load(tmp_path):
    spec = FaultSpec(end_in_load=str(tmp_path))
    death_in_load(spec, "w0")()
    death_in_load(None, "w0")()
    (tmp_path / "w0").touch()
    code = (
        "import sys\nfrom baton.runtime.faults import *\n"
        "die = death_in_load(FaultSpec(end_in_load=sys.argv[1]), sys.argv[2])\n"
        "die()\nprint('lives')"
    )
    for worker, expected in (("w1", 0), ("w0", -signal.SIGKILL), ("w0", 0)):
        command = [sys.executable, "-c", code, str(tmp_path), worker]
        done = subprocess.run(command, capture_output=True, timeout=30)
        assert done.returncode == expected, done.stderr
        assert (done.stdout == b"lives\n") == (expected == 0)
