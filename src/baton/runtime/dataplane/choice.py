"""Which data plane a deployment uses: named once for all of its workers, opened by each."""

from msgspec.structs import replace

from baton.config import BatonConfig
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
            host="127.0.0.1" if config.cluster.control == "ipc" else config.cluster.control_host,
        )
    if transfer.data_plane == "auto":
        raise ConfigError("transfer.data_plane auto must be settled before workers start")
    return ShmDataPlane(checksum=transfer.checksum, pace=pace)


def create_arena(
    config: BatonConfig, worker_id: str, nbytes: int, epoch: int, *, is_shared: bool = False
) -> Arena:
    """The arena for the plane of a settled configuration; `is_shared` if other processes of the
    worker compute in it."""
    if config.transfer.data_plane == "nixl" and not is_shared:
        return Arena.create_private(worker_id, nbytes, epoch=epoch)
    return Arena.create(worker_id, nbytes, epoch=epoch)
