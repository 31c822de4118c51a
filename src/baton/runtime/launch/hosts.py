"""Where a deployment's workers will run, checked and held before anything expensive."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.runtime.cores import check_cores
from baton.runtime.gateway.tenants import check_key_file
from baton.runtime.launch.launcher import Launcher
from baton.runtime.launch.local import LocalLauncher
from baton.runtime.preflight import check_host
from baton.runtime.ray.address import ray_address

_LOOPBACK = "127.0.0.1"


class Hosts(msgspec.Struct, frozen=True):
    """The configuration as it is on these hosts, and how to start workers there."""

    config: BatonConfig
    launcher: Callable[[Path], Launcher]
    """By the path of the model on this host."""


@asynccontextmanager
async def open_hosts(config: BatonConfig) -> AsyncIterator[Hosts]:
    """Hold the hosts that `cluster.launcher` names. Raises ConfigError for what cannot be had."""
    cluster = config.cluster
    if cluster.launcher == "local":
        if cluster.nodes or cluster.placement != "pack":
            name = "nodes" if cluster.nodes else "placement"
            raise ConfigError(
                f"cluster.{name}: cluster.launcher=local has one host; use --cluster ray://auto"
            )
        check_cores(config)  # what cannot fit is refused before a model is fetched
        check_host(config)
        yield Hosts(config, lambda model_path: LocalLauncher(config, model_path))
        return
    ray_address(cluster.launcher)  # before anything of Ray is imported
    check_key_file(config.gateway)
    from baton.runtime.ray.cluster import open_cluster
    from baton.runtime.ray.launcher import RayLauncher

    async with open_cluster(config) as held:
        # Messages leave the host, so they travel encrypted over tcp, whatever was set.
        own = cluster.control_host if cluster.control_host != _LOOPBACK else held.host
        remote = replace(config, cluster=replace(cluster, control="tcp", control_host=own))
        yield Hosts(remote, lambda model_path: RayLauncher(remote, held))
