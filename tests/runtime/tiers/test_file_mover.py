"""Both ways between memory and files write the same files, and neither goes on after its end."""

import os
import struct

import numpy as np
import pytest
from tests.runtime.tiers.conftest import NIXL
from tests.runtime.tiers.tier_rig import LAYOUT, TierRig, order

from baton.config import load_config
from baton.core.cache import Tier
from baton.errors import ConfigError
from baton.runtime.dataplane.nixl import is_installed, library
from baton.runtime.dataplane.nixl.agent import EngineFault
from baton.runtime.dataplane.nixl.file_agent import FileAgent
from baton.runtime.preflight import check_host
from baton.runtime.tiers.block_file import HEADER_NBYTES
from baton.runtime.tiers.file_mover import open_mover

MEMORY, DISK = Tier.MEMORY, Tier.DISK


@pytest.fixture
def mover(driver):
    made = open_mover(driver)
    yield made
    made.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def write(mover, path, rows, flags: int = os.O_WRONLY) -> None:
    handle = os.open(path, flags | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        mover.write(handle, b"head", rows)
    finally:
        os.close(handle)


def read(mover, path, rows, flags: int = os.O_RDONLY) -> tuple[int, bytes]:
    handle, head = os.open(path, flags), bytearray(4)
    try:
        return mover.read(handle, head, rows), bytes(head)
    finally:
        os.close(handle)


@pytest.mark.parametrize("layers", [1, 3, 300, 1500])
def test_scattered_rows_lie_in_a_row_behind_the_header(mover, path, layers):
    memory = np.random.default_rng(layers).integers(0, 256, (layers, 5, 24), dtype=np.uint8)
    other = memory.copy()
    write(mover, path, memory[:, 2])
    assert path.read_bytes() == b"head" + memory[:, 2].tobytes()
    assert read(mover, path, other[:, 4]) == (4 + layers * 24, b"head")
    assert (other[:, 4] == memory[:, 2]).all()
    assert (other[:, :4] == memory[:, :4]).all()


def test_many_memories_are_served_one_after_another(mover, path):
    for number in range(20):
        rows = np.full((2, 64), number, np.uint8)
        write(mover, path, rows)
        found = np.zeros_like(rows)
        assert read(mover, path, found)[0] == 132
        assert (found == number).all()


@pytest.mark.parametrize("nbytes", [0, 3, 4, 5, 131])
def test_of_a_short_file_what_is_there_is_counted(mover, path, nbytes):
    path.write_bytes(bytes(range(nbytes)))
    there, head = read(mover, path, np.zeros((2, 64), np.uint8))
    assert there == nbytes and head[:nbytes] == bytes(range(min(nbytes, 4)))


def test_a_file_that_refuses_is_an_error_and_the_next_one_works(mover, path):
    rows = np.ones((2, 64), np.uint8)
    with pytest.raises(OSError, match=r"Bad file descriptor|NIXL wrote no block"):
        write(mover, path, rows, os.O_RDONLY)
    write(mover, path, rows)
    with pytest.raises(OSError, match=r"Bad file descriptor|NIXL read no block"):
        read(mover, path, rows, os.O_WRONLY)
    assert read(mover, path, rows) == (132, b"head")


def test_a_file_that_ends_while_it_is_read_is_an_error(path):
    if not is_installed():
        pytest.skip("NIXL is not installed: pip install 'kvbaton[nixl]'")
    agent, rows = FileAgent(), np.ones((2, 64), np.uint8)
    path.write_bytes(bytes(100))
    handle = os.open(path, os.O_RDONLY)
    with pytest.raises(EngineFault, match="NIXL_ERR_BACKEND"):
        agent.move("read", handle, 4, rows)
    path.write_bytes(bytes(132))
    agent.move("read", handle, 4, rows)
    assert not rows.any()
    os.close(handle)
    agent.close()


@pytest.mark.parametrize("first", ["files", NIXL])
@pytest.mark.parametrize("second", ["files", NIXL])
def test_each_driver_finds_what_the_other_has_stored(tmp_path, first, second):
    rig = TierRig(tmp_path, driver=first)
    wanted = rig.block(2)
    total = rig.copier.copy(order(1, (MEMORY, 2), (DISK, 0)))
    data = rig.file(1).read_bytes()
    assert len(data) == HEADER_NBYTES + LAYOUT.bytes_per_block
    assert struct.unpack_from("<Q", data, 80)[0] == total
    rig.close()
    again = TierRig(tmp_path, driver=second)
    assert [entry[1] for entry in again.disk.recover().entries] == [total]
    assert again.copier.copy(order(1, (DISK, 0), (MEMORY, 5))) == total
    assert again.block(5) == wanted
    again.close()


def test_a_missing_nixl_is_refused_before_a_worker_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_BUILDS", ("no_such_build_of_nixl",))
    disk = [f"cache.disk_dir={tmp_path}", "cache.disk_nbytes=1000000"]
    check_host(load_config(None, disk))
    with pytest.raises(ConfigError, match=r"^cache\.disk_driver=nixl needs .* or use cache\.disk_"):
        check_host(load_config(None, [*disk, "cache.disk_driver=nixl"]))
