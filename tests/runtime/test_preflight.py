"""What a host cannot give is refused before a worker is spawned, with what it could give."""

import os
import re
from collections import namedtuple
from pathlib import Path

import pytest

from baton.config import load_config
from baton.errors import ConfigError
from baton.runtime import preflight
from baton.runtime.deployment import deploy
from baton.runtime.tiers.folder import TierFolder

GIB = 1 << 30
Status = namedtuple("Status", "f_frsize f_blocks f_bavail")


def config(*overrides: str):
    return load_config(None, ["model.name=tiny", *overrides])


@pytest.fixture
def host(monkeypatch):
    """Says how much memory and file system there is."""

    def give(memory: int | None, shm: int, *, limited: bool = True) -> None:
        monkeypatch.setattr(preflight, "available_memory_nbytes", lambda: memory)
        status = Status(1, shm if limited else 0, shm)
        monkeypatch.setattr(os, "statvfs", lambda path: status)

    return give


@pytest.mark.parametrize(
    ("memory", "shm", "place"),
    [
        (20 * GIB, 64 * GIB, "of memory"),
        (64 * GIB, 20 * GIB, "of /dev/shm"),
        (None, 20 * GIB, "of /dev/shm"),
    ],
)
def test_host_tiers_that_do_not_fit_together_are_refused(host, memory, shm, place):
    host(memory, shm)
    share = 9 * GIB  # of two workers, once a tenth stays free
    preflight.check_host(config(f"cache.host_nbytes={share}"))
    with pytest.raises(ConfigError) as caught:
        preflight.check_host(config(f"cache.host_nbytes={share + 1}"))
    said = str(caught.value)
    assert said.startswith(f"cache.host_nbytes {share + 1}: 2 workers would take 18.0 GiB together")
    assert f"20.0 GiB {place} are available" in said
    assert f"use {share} or less, or fewer workers" in said


def test_more_workers_have_smaller_shares(host):
    host(20 * GIB, 64 * GIB)
    with pytest.raises(ConfigError, match=r"3 workers would take 27\.0 GiB"):
        preflight.check_host(config("cluster.decode=2", f"cache.host_nbytes={9 * GIB}"))


def test_what_nobody_counts_has_no_bound_and_no_tier_asks_for_nothing(host):
    host(None, 0, limited=False)
    preflight.check_host(config(f"cache.host_nbytes={9 * GIB}"))
    host(0, 0)
    preflight.check_host(config())


def test_the_available_memory_is_that_of_the_kernel(monkeypatch, tmp_path):
    available = preflight.available_memory_nbytes()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert available is not None and 1 << 20 < available <= total
    monkeypatch.setattr(preflight, "_MEMORY", tmp_path / "meminfo")
    assert preflight.available_memory_nbytes() is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert preflight.available_memory_nbytes() == 7 * 1024


def test_disks_larger_than_their_file_system_are_refused(tmp_path):
    folder = tmp_path / "not" / "there"
    status = os.statvfs(tmp_path)
    share = status.f_blocks * status.f_frsize // 2
    for nbytes in (share + 1, 99999999999999999999):
        with pytest.raises(ConfigError) as caught:
            preflight.check_host(config(f"cache.disk_dir={folder}", f"cache.disk_nbytes={nbytes}"))
        said = str(caught.value)
        assert said.startswith(f"cache.disk_nbytes {nbytes}: 2 workers would take ")
        assert f"'{folder}'" in said and f"use {share} or less" in said
    assert not folder.exists()
    preflight.check_host(config(f"cache.disk_dir={folder}", f"cache.disk_nbytes={share}"))
    assert sorted(path.name for path in folder.iterdir()) == ["decode-1", "prefill-0"]


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    tier = "cache.disk_nbytes=1000000"
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(ConfigError, match=r"^cache\.disk_dir .* cannot be written"):
            preflight.check_host(config(f"cache.disk_dir={tmp_path / place}", tier))
    owner = TierFolder(str(tmp_path), "decode-1")
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
        preflight.check_host(config(f"cache.disk_dir={tmp_path}", tier))
    owner.close()
    preflight.check_host(config(f"cache.disk_dir={tmp_path}", tier))
    TierFolder(str(tmp_path), "decode-1").close()  # the check has let it go again


def test_a_key_file_is_tried_and_a_pipe_is_left_alone(tmp_path):
    secret, pipe = tmp_path / "secret", tmp_path / "pipe"
    checked = config(f"gateway.tenant_key_file={secret}")
    with pytest.raises(ConfigError, match=r"gateway\.tenant_key_file .*: No such file"):
        preflight.check_host(checked)
    secret.write_bytes(b"short")
    with pytest.raises(ConfigError, match="has 5 bytes"):
        preflight.check_host(checked)
    secret.write_bytes(bytes(16))
    preflight.check_host(checked)
    os.mkfifo(pipe)
    preflight.check_host(config(f"gateway.tenant_key_file={pipe}"))


async def test_a_deployment_asks_before_anything_starts(host):
    host(GIB, GIB)
    stages: list[str] = []
    refused = deploy(
        config("model.name=/nowhere", f"cache.host_nbytes={GIB}"),
        lambda stage, fraction: stages.append(stage),
    )
    with pytest.raises(ConfigError, match=re.escape(f"cache.host_nbytes {GIB}: ")):
        async with refused:
            pass
    assert stages == [] and not Path("/nowhere").exists()
