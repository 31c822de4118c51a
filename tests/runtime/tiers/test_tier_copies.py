"""Blocks go down and come up again bit for bit, and whatever else lies there is a miss."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
import xxhash
from tests.runtime.tiers.tier_rig import LAYOUT, NUM_BLOCKS, NUM_SLOTS, TierRig, model, name, order

from baton.core.cache import Tier
from baton.core.effects import DropBlock
from baton.errors import ConfigError, LocalProtocolError
from baton.runtime.dataplane.segments import SHM_DIR
from baton.runtime.tiers.block_file import HEADER_NBYTES, BlockHeader
from baton.runtime.tiers.copier import TierCopier
from baton.runtime.tiers.disk_tier import DiskTier
from baton.runtime.tiers.host_tier import HostTier
from baton.runtime.tiers.memory_tier import MemoryTier
from baton.runtime.tiers.miss import MissKind, TierMiss

MEMORY, HOST, DISK = Tier.MEMORY, Tier.HOST, Tier.DISK


@pytest.fixture
def rig(tmp_path, driver):
    made = TierRig(tmp_path, driver=driver)
    yield made
    made.close()
    assert not (SHM_DIR / made.host.segment).exists()


@pytest.mark.parametrize(
    "path",
    [
        [(MEMORY, 2), (HOST, 1), (MEMORY, 5)],
        [(MEMORY, 2), (DISK, 0), (MEMORY, 5)],
        [(MEMORY, 2), (HOST, 3), (DISK, 1), (MEMORY, 5)],
        [(MEMORY, 2), (HOST, 3), (DISK, 1), (HOST, 0), (MEMORY, 5)],
    ],
    ids=lambda path: "-".join(tier for tier, _ in path),
)
def test_a_block_comes_back_bit_for_bit(rig, path):
    wanted, others = rig.block(2), [rig.block(n) for n in (0, 1, 3, 4, 6, 7)]
    assert rig.block(5) != wanted
    sums = [rig.copier.copy(order(9, source, target)) for source, target in pairwise(path)]
    assert rig.block(5) == wanted
    assert [rig.block(n) for n in (0, 1, 3, 4, 6, 7)] == others
    assert set(sums) == {xxhash.xxh3_64_intdigest(wanted)}


def test_all_slots_hold_their_own_blocks(rig):
    before = [rig.block(n) for n in range(NUM_SLOTS)]
    for n in range(NUM_SLOTS):
        rig.copier.copy(order(n, (MEMORY, n), (HOST, n)))
        rig.copier.copy(order(n, (MEMORY, n), (DISK, n)))
    for tier in (HOST, DISK):
        rig.pool[:] = 0
        for n in range(NUM_SLOTS):
            rig.copier.copy(order(n, (tier, n), (MEMORY, NUM_BLOCKS - 1 - n)))
        assert [rig.block(NUM_BLOCKS - 1 - n) for n in range(NUM_SLOTS)] == before


def test_a_host_slot_gives_only_what_was_stored_in_it(rig):
    with pytest.raises(TierMiss) as absent:
        rig.copier.copy(order(1, (HOST, 0), (MEMORY, 0)))
    rig.copier.copy(order(1, (MEMORY, 0), (HOST, 0), generation=3))
    with pytest.raises(TierMiss) as foreign:
        rig.copier.copy(order(2, (HOST, 0), (MEMORY, 0), generation=3))
    with pytest.raises(TierMiss) as stale:
        rig.copier.copy(order(1, (HOST, 0), (MEMORY, 0), generation=4))
    rig.host.layers(0)[1][3] ^= 1
    with pytest.raises(TierMiss) as corrupt:
        rig.copier.copy(order(1, (HOST, 0), (MEMORY, 0), generation=3))
    rig.copier.drop(DropBlock(tier=HOST, slot=0, block_hash=name(1)))
    with pytest.raises(TierMiss) as dropped:
        rig.copier.copy(order(1, (HOST, 0), (MEMORY, 0), generation=3))
    assert [caught.value.kind for caught in (absent, foreign, stale, corrupt, dropped)] == [
        MissKind.ABSENT,
        MissKind.FOREIGN,
        MissKind.STALE,
        MissKind.CORRUPT,
        MissKind.ABSENT,
    ]


def _cut(rig: TierRig, nbytes: int) -> None:
    with rig.file(1).open("r+b") as file:
        file.truncate(nbytes)


def _flip(rig: TierRig, offset: int) -> None:
    data = bytearray(rig.file(1).read_bytes())
    data[offset] ^= 0x10
    rig.file(1).write_bytes(data)


def _rewrite(rig: TierRig, **changes: object) -> None:
    data = rig.file(1).read_bytes()
    header = msgspec.structs.replace(BlockHeader.decode(data), **changes)
    rig.file(1).write_bytes(header.encode() + data[HEADER_NBYTES:])


DAMAGES = {
    "deleted": (lambda rig: rig.file(1).unlink(), MissKind.ABSENT),
    "empty": (lambda rig: _cut(rig, 0), MissKind.TRUNCATED),
    "half a header": (lambda rig: _cut(rig, 50), MissKind.TRUNCATED),
    "only a header": (lambda rig: _cut(rig, HEADER_NBYTES), MissKind.TRUNCATED),
    "one byte less": (
        lambda rig: _cut(rig, HEADER_NBYTES + LAYOUT.bytes_per_block - 1),
        MissKind.TRUNCATED,
    ),
    "payload bit": (lambda rig: _flip(rig, HEADER_NBYTES + 700), MissKind.CORRUPT),
    "last bit": (lambda rig: _flip(rig, -1), MissKind.CORRUPT),
    "generation bit": (lambda rig: _flip(rig, 50), MissKind.CORRUPT),
    "magic": (lambda rig: _flip(rig, 2), MissKind.FOREIGN),
    "version": (lambda rig: _flip(rig, 8), MissKind.FOREIGN),
    "older generation": (lambda rig: _rewrite(rig, generation=0), MissKind.STALE),
    "another block": (lambda rig: _rewrite(rig, block_hash=name(2)), MissKind.FOREIGN),
    "another layout": (lambda rig: _rewrite(rig, layout_digest="ab" * 16), MissKind.FOREIGN),
    "another model": (lambda rig: _rewrite(rig, origin_digest="ab" * 16), MissKind.FOREIGN),
    "another size": (lambda rig: _rewrite(rig, nbytes=8), MissKind.FOREIGN),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_a_miss_with_its_reason(rig, damage):
    act, kind = DAMAGES[damage]
    rig.copier.copy(order(1, (MEMORY, 0), (DISK, 0)))
    act(rig)
    with pytest.raises(TierMiss) as caught:
        rig.copier.copy(order(1, (DISK, 0), (MEMORY, 1)))
    assert caught.value.kind is kind
    wanted = rig.block(0)
    rig.copier.copy(order(1, (MEMORY, 0), (DISK, 0)))
    rig.copier.copy(order(1, (DISK, 0), (MEMORY, 1)))
    assert rig.block(1) == wanted, "a new store heals it"


def test_a_dropped_block_is_gone_and_dropping_it_again_is_no_error(rig):
    rig.copier.copy(order(1, (MEMORY, 0), (DISK, 0)))
    for _ in range(2):
        rig.copier.drop(DropBlock(tier=DISK, slot=0, block_hash=name(1)))
        assert not rig.file(1).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint": "other"},
        {"dtype": "bfloat16"},
        {"device": "cuda"},
        {"deterministic": False},
        {"layout": msgspec.structs.replace(LAYOUT, head_dim=4)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_files_of_other_models_and_other_arithmetic_are_removed_at_the_start(
    tmp_path, driver, changes
):
    rig = TierRig(tmp_path, driver=driver)
    rig.copier.copy(order(1, (MEMORY, 0), (DISK, 0)))
    rig.close()
    again = DiskTier(str(tmp_path), "w0", model(), NUM_SLOTS)
    assert [entry[0] for entry in again.recover().entries] == [name(1)]
    again.close()
    other = DiskTier(str(tmp_path), "w0", model(**changes), NUM_SLOTS)
    found = other.recover()
    assert (found.entries, found.num_removed) == ((), 1)
    assert not rig.file(1).exists()
    other.close()


class RecordingStager:
    """A device whose mirror is the memory under test."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, range, tuple[int, ...]]] = []

    def copy_out(self, layers: range, blocks: tuple[int, ...]) -> None:
        self.calls.append(("out", layers, blocks))

    def copy_in(self, layers: range, blocks: tuple[int, ...]) -> None:
        self.calls.append(("in", layers, blocks))


def test_a_device_pool_is_staged_and_a_miss_never_reaches_the_device(tmp_path, driver):
    stager, rig = RecordingStager(), TierRig(tmp_path, driver=driver)
    memory = MemoryTier(rig.pool, LAYOUT, NUM_BLOCKS, stager)
    copier = TierCopier(memory, rig.host, rig.disk)
    copier.copy(order(1, (MEMORY, 2), (DISK, 0)))
    copier.copy(order(1, (DISK, 0), (HOST, 0)))
    copier.copy(order(1, (HOST, 0), (MEMORY, 3)))
    _flip(rig, -1)
    with pytest.raises(TierMiss):
        copier.copy(order(1, (DISK, 0), (MEMORY, 4)))
    assert stager.calls == [("out", range(3), (2,)), ("in", range(3), (3,))]
    copier.close()


def test_a_tier_that_is_not_there_is_named(tmp_path):
    rig = TierRig(tmp_path)
    bare = TierCopier(MemoryTier(rig.pool, LAYOUT, NUM_BLOCKS), None, None)
    with pytest.raises(LocalProtocolError, match="host_nbytes"):
        bare.copy(order(1, (MEMORY, 0), (HOST, 0)))
    with pytest.raises(LocalProtocolError, match="disk_dir"):
        bare.copy(order(1, (MEMORY, 0), (DISK, 0)))
    rig.close()


def test_a_closed_copier_touches_no_memory(rig):
    rig.copier.copy(order(1, (MEMORY, 0), (DISK, 0)))
    before = rig.pool.copy()
    rig.copier.close()
    with pytest.raises(IndexError):
        rig.copier.copy(order(1, (DISK, 0), (MEMORY, 1)))
    assert np.array_equal(rig.pool, before)


def test_a_host_tier_that_does_not_fit_names_its_own_field():
    with pytest.raises(ConfigError, match=r"lower cache\.host_nbytes"):
        HostTier("w0", 1, LAYOUT, 1 << 45)
