"""What this host must be able to give, asked before a worker is spawned.

A worker would find it out too, but only once each has loaded a model; and memory that all of them
take at once is never refused to any: the kernel ends a process instead.
"""

import os
from pathlib import Path

from baton.config import BatonConfig
from baton.core.units import shown_nbytes
from baton.errors import ConfigError
from baton.runtime.dataplane import sweep_orphans
from baton.runtime.dataplane.segments import SHM_DIR
from baton.runtime.gateway.tenants import check_key_file
from baton.runtime.tiers.file_mover import require_driver
from baton.runtime.tiers.folder import TierFolder

_MEMORY = Path("/proc/meminfo")
_ROOM_DIVISOR = 10
"""A tenth of what is free stays for pools, models and everything else."""


def check_host(config: BatonConfig) -> None:
    """Raise ConfigError where the tiers or the key file that are asked for cannot be had here."""
    check_key_file(config.gateway)
    if config.cache.host_nbytes:
        _check_memory(config)
    if config.cache.disk_dir:
        require_driver(config.cache.disk_driver)
        _check_disk(config)
        for worker_id in config.cluster.worker_ids:
            TierFolder(config.cache.disk_dir, worker_id).close()


def _check_memory(config: BatonConfig) -> None:
    sweep_orphans()  # what the dead left behind will be gone before it is needed
    for place, free_nbytes in (
        ("of memory", available_memory_nbytes()),
        (f"of {SHM_DIR}", _free_shm_nbytes()),
    ):
        if free_nbytes is None:
            continue
        share = (free_nbytes - free_nbytes // _ROOM_DIVISOR) // len(config.cluster.roles)
        if config.cache.host_nbytes > share:
            raise ConfigError(
                f"{_demand(config, 'host_nbytes')}, and {shown_nbytes(free_nbytes)} {place} "
                f"are available, a tenth of which stays free for all else; use {share} or less, or "
                "fewer workers"
            )


def _check_disk(config: BatonConfig) -> None:
    place = Path(config.cache.disk_dir).expanduser().absolute()
    try:
        status = os.statvfs(next(path for path in (place, *place.parents) if path.exists()))
    except OSError:
        return  # the folders themselves are tried next, and say what is wrong
    total_nbytes = status.f_blocks * status.f_frsize
    share = total_nbytes // len(config.cluster.roles)
    # Some file systems, as a tmpfs without a limit, count no blocks.
    if total_nbytes and config.cache.disk_nbytes > share:
        raise ConfigError(
            f"{_demand(config, 'disk_nbytes')}, and the whole file system of cache.disk_dir "
            f"{config.cache.disk_dir!r} has {shown_nbytes(total_nbytes)}; use {share} or less, "
            "fewer workers, or a larger one"
        )


def _demand(config: BatonConfig, name: str) -> str:
    count, nbytes = len(config.cluster.roles), getattr(config.cache, name)
    workers = f"{count} worker{'s' if count > 1 else ''}"
    return f"cache.{name} {nbytes}: {workers} would take {shown_nbytes(count * nbytes)} together"


def available_memory_nbytes() -> int | None:
    """What new allocations may take without swapping, by the kernel; None where it does not say."""
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_shm_nbytes() -> int | None:
    try:
        status = os.statvfs(SHM_DIR)
    except OSError:
        return None
    # A tmpfs mounted with size=0 has no limit of its own and reports no blocks.
    return status.f_bavail * status.f_frsize if status.f_blocks else None
