"""The folder of a disk tier: one owner, what its start keeps and removes, what it says."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.runtime.tiers.tier_rig import LAYOUT, NUM_SLOTS, TierRig, model, name, order

from baton.config import CacheConfig
from baton.core.cache import Tier
from baton.errors import ConfigError
from baton.runtime.tiers import tier_capacity
from baton.runtime.tiers.block_file import HEADER_NBYTES
from baton.runtime.tiers.disk_tier import DiskTier

MEMORY, DISK = Tier.MEMORY, Tier.DISK
OWNER = (
    "import sys, time\n"
    "from baton.runtime.tiers.folder import TierFolder\n"
    "folder = TierFolder(sys.argv[1], 'w0')\n"
    "folder.half_path(b'torn' * 4).write_bytes(b'torn')\n"
    "print('owned', flush=True)\n"
    "time.sleep(60)\n"
)


def opened(folder, max_blocks: int = NUM_SLOTS) -> DiskTier:
    return DiskTier(str(folder), "w0", model(), max_blocks)


def recovered(folder, max_blocks: int = NUM_SLOTS) -> tuple[int, list[bytes], int]:
    """Generation, names and the number of removed files of a fresh start."""
    tier = opened(folder, max_blocks)
    found = tier.recover()
    tier.close()
    return found.generation, [entry[0] for entry in found.entries], found.num_removed


def store(rig: TierRig, *numbers: int, generation: int = 1) -> None:
    for at, number in enumerate(numbers):
        rig.copier.copy(order(number, (MEMORY, 0), (DISK, 0), generation=generation))
        os.utime(rig.file(number), ns=(at * 10**9, at * 10**9))


def test_a_later_life_finds_blocks_oldest_first_with_their_checksums(tmp_path, driver):
    rig = TierRig(tmp_path, driver=driver)
    checksum = rig.copier.copy(order(3, (MEMORY, 0), (DISK, 0)))
    store(rig, 7, 3, 5)
    rig.close()
    tier = opened(tmp_path)
    found = tier.recover()
    tier.close()
    assert found.entries == tuple((name(number), checksum) for number in (7, 3, 5))
    assert (found.generation, found.num_removed) == (1, 0)


def test_only_the_newest_generation_is_found_and_older_files_go(tmp_path, driver):
    rig = TierRig(tmp_path, driver=driver)
    store(rig, 1, 2, generation=4)
    store(rig, 3, generation=6)
    store(rig, 4, generation=5)
    rig.close()
    assert recovered(tmp_path) == (6, [name(3)], 3)
    assert {path.name for path in rig.folder.iterdir()} == {"lock", rig.file(3).name}


def test_a_clear_is_remembered_although_it_leaves_no_file(tmp_path):
    rig = TierRig(tmp_path)
    store(rig, 1, 2, generation=3)
    for generation in (5, 5, 2):
        rig.copier.raise_floor(generation)
    rig.close()
    assert recovered(tmp_path) == (5, [], 2)
    assert recovered(tmp_path) == (5, [], 0)
    rig = TierRig(tmp_path)
    store(rig, 1, generation=5)
    store(rig, 2, generation=4)
    (rig.folder / "generation.half").write_text("torn")
    rig.close()
    assert recovered(tmp_path) == (5, [name(1)], 1)
    (rig.folder / "generation").write_text("?")
    assert recovered(tmp_path) == (5, [name(1)], 0)


def test_what_no_longer_fits_goes_oldest_first(tmp_path, driver):
    rig = TierRig(tmp_path, driver=driver)
    store(rig, 1, 2, 3)
    rig.close()
    assert recovered(tmp_path, max_blocks=2) == (1, [name(2), name(3)], 1)
    assert recovered(tmp_path) == (1, [name(2), name(3)], 0)


def test_halves_and_broken_files_go_and_foreign_names_stay(tmp_path, driver):
    rig = TierRig(tmp_path, driver=driver)
    store(rig, 1, 2, 3, 4, 5)
    os.truncate(rig.file(1), HEADER_NBYTES + LAYOUT.bytes_per_block - 1)
    os.truncate(rig.file(2), 10)
    rig.file(3).write_bytes(b"\0" * (HEADER_NBYTES + LAYOUT.bytes_per_block))
    rig.file(4).rename(rig.file(6))
    (rig.folder / f"{name(7).hex()}.kv.half").write_bytes(b"torn")
    (rig.folder / "notes.txt").write_text("mine")
    rig.file(8).symlink_to(rig.folder / "notes.txt")
    rig.close()
    assert recovered(tmp_path) == (1, [name(5)], 6)
    names = {path.name for path in rig.folder.iterdir()}
    assert names == {"lock", "notes.txt", rig.file(5).name}


def test_a_folder_has_one_owner_until_that_is_dead(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None and owner.stdout.readline() == b"owned\n"
        with pytest.raises(ConfigError) as caught:
            opened(tmp_path)
        assert str(tmp_path) in str(caught.value) and "cache.disk_dir" in str(caught.value)
        assert f"in use by process {owner.pid};" in str(caught.value)
        DiskTier(str(tmp_path), "w1", model(), NUM_SLOTS).close()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert recovered(tmp_path) == (0, [], 1), "kill -9 leaves a half and no lock"


def test_a_place_that_takes_no_files_is_refused_with_field_value_and_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", "/proc/self"):
        with pytest.raises(ConfigError) as caught:
            opened(place)
        text = str(caught.value)
        assert text.startswith(f"cache.disk_dir '{place}': {place}/w0 cannot be written: ")
        assert "name a directory that this user may write" in text


def test_a_folder_that_became_read_only_is_refused_although_its_lock_opens():
    """As an ordinary user: root's rights would hide it."""
    code = (
        "import os, sys\n"
        "from baton.errors import ConfigError\n"
        "from baton.runtime.tiers.folder import TierFolder\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try:\n    TierFolder(sys.argv[1], 'w0')\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    with tempfile.TemporaryDirectory() as place:
        opened(place).close()
        folder = Path(place, "w0")
        for path, mode in ((Path(place), 0o755), (folder / "lock", 0o666), (folder, 0o555)):
            path.chmod(mode)
        command = [sys.executable, "-c", code, place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        folder.chmod(0o755)
    assert f"{place}/w0 cannot be written: Permission denied; name a dir" in done.stdout, done


def test_capacities_come_from_bytes_and_less_than_a_block_is_refused():
    block = LAYOUT.bytes_per_block
    cache = CacheConfig(host_nbytes=5 * block + 1, disk_dir="d", disk_nbytes=3 * block)
    found = tier_capacity(cache, LAYOUT)
    assert (found.num_host_blocks, found.num_disk_blocks) == (5, 2), "a file has a header too"
    assert str(tier_capacity(CacheConfig(), LAYOUT)) == ""
    assert str(found).startswith("host tier of 5 blocks (7.5 KiB), disk tier of 2 blocks")
    with pytest.raises(ConfigError, match=rf"cache\.host_nbytes 7 .* {block} bytes"):
        tier_capacity(CacheConfig(host_nbytes=7), LAYOUT)
    with pytest.raises(ConfigError, match=r"cache\.disk_nbytes 7 holds no block"):
        tier_capacity(CacheConfig(disk_dir="d", disk_nbytes=7), LAYOUT)
