"""Segments: who unlinks, who may not, and what a full or foreign /dev/shm does."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.dataplane import Arena, ShmDataPlane, sweep_orphans
from baton.runtime.dataplane.segments import SHM_DIR, new_name

MIB = 1 << 20


def _attach_elsewhere(arena: Arena, code: str) -> None:
    raw = msgspec.msgpack.encode(arena.descriptor)
    program = (
        "import msgspec\nfrom baton.runtime.dataplane import *\n"
        f"arena = Arena.attach(msgspec.msgpack.decode({raw!r}, type=ArenaDescriptor))\n{code}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


def test_attachers_share_bytes_and_never_unlink():
    arena = Arena.create("w0", 5000, epoch=3)
    path = SHM_DIR / arena.descriptor.name
    try:
        assert arena.nbytes == 8192
        assert path.stat().st_mode & 0o777 == 0o600
        _attach_elsewhere(arena, "arena.buffer[7] = 42")
        _attach_elsewhere(arena, "arena.close()")
        assert arena.buffer[7] == 42
        assert path.exists()
    finally:
        arena.close()
    assert not path.exists()


def test_an_owner_that_exits_without_close_unlinks():
    program = (
        "from baton.runtime.dataplane import Arena\n"
        "arena = Arena.create('w', 4096)\nprint(arena.descriptor.name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=20
    )
    assert not (SHM_DIR / done.stdout.strip()).exists()


def test_orphans_of_the_dead_are_swept_and_the_living_kept():
    living = Arena.create("living", 4096)
    program = (
        "import os\nfrom baton.runtime.dataplane import Arena\n"
        "arena = Arena.create('dead', 4096)\nprint(arena.descriptor.name, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20
    )
    orphan = done.stdout.strip()
    # The same pid with another start time: a reused pid must not protect an orphan.
    fields = new_name("reused").split("-")
    reused = "-".join([*fields[:2], str(int(fields[2]) - 1), *fields[3:]])
    foreign = "-".join([fields[0], "1", "1", "1", *fields[4:]])
    (SHM_DIR / reused).touch(mode=0o600)
    (SHM_DIR / foreign).touch(mode=0o600)
    try:
        assert (SHM_DIR / orphan).exists()
        swept = sweep_orphans()
        assert {orphan, reused} <= set(swept)
        assert foreign not in swept, "another pid namespace cannot be judged"
        assert (SHM_DIR / living.descriptor.name).exists()
    finally:
        (SHM_DIR / foreign).unlink()
        living.close()


def test_too_large_an_arena_is_refused_with_sizes_and_remedy():
    status = os.statvfs(SHM_DIR)
    before = set(SHM_DIR.iterdir())
    with pytest.raises(ConfigError, match=r"MiB.*worker\.kv_nbytes"):
        Arena.create("w0", status.f_bavail * status.f_frsize + 64 * MIB)
    with pytest.raises(ConfigError, match="at least 1"):
        Arena.create("w0", 0)
    assert not {path for path in set(SHM_DIR.iterdir()) - before if "w0" in path.name}


def test_a_wrong_descriptor_is_refused():
    arena = Arena.create("w0", 4096)
    try:
        for change in ({"name": "../etc/passwd"}, {"nbytes": 8192}, {"name": new_name("gone")}):
            with pytest.raises(RemoteProtocolError):
                Arena.attach(msgspec.structs.replace(arena.descriptor, **change))
    finally:
        arena.close()


def test_a_view_keeps_the_memory_after_close():
    arena = Arena.create("w0", 4096)
    view = arena.buffer[:16]
    arena.close()
    arena.close()
    view[:] = 1
    assert view.sum() == 16


def test_nothing_leaks_over_many_lives():
    def fds() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("baton-")

    before, own = fds(), f"baton-{os.getpid()}-*"
    for epoch in range(200):
        arena = Arena.create("leak", 64 << 10, epoch=epoch)
        plane = ShmDataPlane()
        plane.connect(plane.register(arena))
        peer = Arena.attach(arena.descriptor)
        peer.close()
        plane.close()
        arena.close()
    assert fds() == before
    assert mappings() == 0
    assert not list(SHM_DIR.glob(own))
