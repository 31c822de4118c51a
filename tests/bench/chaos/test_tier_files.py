"""Damage to the files of disk tiers is found by whoever loads them, and leaks are named."""

import pytest
from tests.runtime.tiers.tier_rig import NUM_SLOTS, TierRig, name, order

from baton.bench.chaos.tier_files import TierFiles
from baton.core.cache import Tier
from baton.runtime.tiers.miss import MissKind, TierMiss


@pytest.fixture
def rig(tmp_path):
    made = TierRig(tmp_path)
    for number in range(NUM_SLOTS):
        made.copier.copy(order(number, (Tier.MEMORY, number), (Tier.DISK, number)))
    yield made
    made.close()


def misses(rig: TierRig) -> list[MissKind]:
    found = []
    for number in range(NUM_SLOTS):
        try:
            rig.copier.copy(order(number, (Tier.DISK, number), (Tier.MEMORY, 0)))
        except TierMiss as miss:
            found.append(miss.kind)
    return found


@pytest.mark.parametrize(
    ("act", "kinds"),
    [
        ("truncate", {MissKind.TRUNCATED}),
        ("corrupt", {MissKind.CORRUPT, MissKind.FOREIGN}),
        ("delete", {MissKind.ABSENT}),
    ],
)
def test_every_damaged_file_is_a_miss_and_no_other_is(rig, act, kinds):
    files = TierFiles(rig.folder.parent, 3)
    for round_number in range(12):
        rig.copier.copy(order(0, (Tier.MEMORY, 0), (Tier.DISK, 0)))
        before = files.num_damaged
        assert getattr(files, act)()
        found = misses(rig)
        assert set(found) <= kinds
        assert len(found) >= files.num_damaged - before == 1, round_number
        for number in range(NUM_SLOTS):
            rig.copier.copy(order(number, (Tier.MEMORY, number), (Tier.DISK, number)))


def test_what_belongs_to_nobody_is_a_leak(rig):
    files = TierFiles(rig.folder.parent, 3)
    assert files.leaks({"w0": NUM_SLOTS}) == files.leaks({"w0": NUM_SLOTS + 1, "w1": 0}) == []
    assert files.leaks({"w0": 3}) == ["w0: 4 files, and 3 blocks on disk that the worker knows"]
    (rig.folder / f"{name(9).hex()}.kv.half").touch()
    assert files.leaks({"w0": 4}) == [f"w0: {name(9).hex()}.kv.half was never finished"]


def test_without_files_nothing_is_damaged(tmp_path):
    files = TierFiles(tmp_path, 1)
    assert not (files.truncate() or files.corrupt() or files.delete())
