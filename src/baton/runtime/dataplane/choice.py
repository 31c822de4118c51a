"""Which data plane a deployment uses: named once for all of its workers, opened by each."""

import ipaddress

from msgspec.structs import replace

from baton.config import BatonConfig, ClusterConfig
from baton.errors import ConfigError
from baton.runtime.dataplane.arena import Arena
from baton.runtime.dataplane.nixl import NixlDataPlane, is_installed, require_nixl
from baton.runtime.dataplane.pace import Pace
from baton.runtime.dataplane.plane import DataPlane
from baton.runtime.dataplane.shm_plane import ShmDataPlane


def settle_plane(config: BatonConfig) -> BatonConfig:
    """The configuration with a plane that can be had here in place of `auto`.

    Raises ConfigError where the named one is not installed.
    """
    transfer = config.transfer
    if transfer.data_plane == "nixl":
        require_nixl("transfer.data_plane=nixl")
    if transfer.data_plane != "auto":
        return config
    return replace(
        config, transfer=replace(transfer, data_plane="nixl" if is_installed() else "shm")
    )


def choose_plane(config: BatonConfig, pace: Pace | None = None) -> DataPlane:
    """Open the data plane that a settled configuration names."""
    transfer = config.transfer
    if transfer.data_plane == "nixl":
        return NixlDataPlane(
            checksum=transfer.checksum,
            move_timeout_ms=transfer.move_timeout_ms,
            pace=pace,
            loopback=_is_loopback(config.cluster),
        )
    if transfer.data_plane == "auto":
        raise ConfigError("transfer.data_plane auto must be settled before workers start")
    return ShmDataPlane(checksum=transfer.checksum, pace=pace)


def create_arena(config: BatonConfig, worker_id: str, nbytes: int, epoch: int) -> Arena:
    """The arena for the plane of a settled configuration."""
    if config.transfer.data_plane == "nixl":
        return Arena.create_private(worker_id, nbytes, epoch=epoch)
    return Arena.create(worker_id, nbytes, epoch=epoch)


def _is_loopback(cluster: ClusterConfig) -> bool:
    """Whether all workers are on this host, so that no other interface needs to listen."""
    if cluster.control == "ipc":
        return True
    try:
        return ipaddress.ip_address(cluster.control_host).is_loopback
    except ValueError:
        return cluster.control_host == "localhost"
