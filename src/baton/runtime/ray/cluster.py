"""A Ray cluster that is attached to or started here, and the room that it holds for workers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.policy.worker_placement import NodeRoom, Placement, place_workers, shortage
from baton.runtime.launch import LifeLost
from baton.runtime.notice import notice
from baton.runtime.ray.address import ray_address
from baton.runtime.ray.needs import needs_of

_LOOPBACK = "127.0.0.1"
_STORE_NBYTES = 80 << 20
"""Ray's object store carries nothing of ours; this is about the least that it takes."""
_NODE_SHARE = 0.001
_POLL_S = 0.2


class Seat(msgspec.Struct, frozen=True):
    """The node of a worker, its place among the workers of this deployment there, their number."""

    node_id: str
    host: str
    place: int
    num_workers: int


class RayCluster:
    """The nodes, and a placement group with a bundle for each group of workers."""

    def __init__(self, config: BatonConfig, placement: Placement) -> None:
        self.needs = needs_of(config)
        self.host = _hosts()[ray.get_runtime_context().get_node_id()]
        """The address of this node: where gateway and router are."""
        self._placement = placement
        self._timeout_s = config.cluster.place_timeout_s
        self._groups: list[PlacementGroup] = []

    async def reserve(self) -> None:
        """Take the room. Raises ConfigError naming what finds none in time."""
        await asyncio.to_thread(self._reserve_gateway)
        bundles = [
            {"CPU": one.cpus, "GPU": one.gpus, "memory": one.memory_nbytes}
            for one in self._placement.bundles
        ]
        wanted = [{name: value for name, value in one.items() if value} for one in bundles]
        rooms = await asyncio.to_thread(_rooms)
        self._groups.insert(
            0,
            await asyncio.to_thread(placement_group, wanted, strategy=self._placement.spreading),
        )
        if not await asyncio.to_thread(self._groups[0].wait, self._timeout_s):
            short = shortage(self._placement, rooms) or "it may fit in another order of groups"
            raise ConfigError(
                f"cluster: {short}; {self._timeout_s:g} s (cluster.place_timeout_s) brought no "
                "other node. Add nodes, or ask for fewer or smaller workers"
            )

    def _reserve_gateway(self) -> None:
        """A core of this node for gateway and router, where Ray may give one away."""
        key = f"node:{self.host}"
        here = next((room for room in _rooms() if room.name == self.host), None)
        if here is None or here.cpus < 1:
            notice("gateway", f"node {self.host} has no CPU to reserve; workers may share its core")
            return
        group = placement_group([{"CPU": 1, key: _NODE_SHARE}], strategy="PACK")
        self._groups.append(group)
        if not group.wait(self._timeout_s):
            notice("gateway", f"a CPU of node {self.host} could not be reserved")

    def bundle_of(self, worker_id: str) -> tuple[PlacementGroup, int]:
        """The group and the number of the bundle in which this worker stands."""
        return self._groups[0], self._placement.bundle_of(worker_id)

    async def seat(self, worker_id: str) -> Seat:
        """The node of a worker.

        Raises LifeLost while Ray finds no node for its bundle.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        mine = self._placement.bundle_of(worker_id)
        while True:
            nodes = await asyncio.to_thread(self._nodes)
            if nodes.get(mine):
                break
            if loop.time() > deadline_s:
                raise LifeLost(f"it waits for a node: {await self.why_not_placed()}")
            await asyncio.sleep(_POLL_S)
        there = [
            need.worker_id
            for need in self.needs
            if nodes.get(self._placement.bundle_of(need.worker_id)) == nodes[mine]
        ]
        hosts = await asyncio.to_thread(_hosts)
        return Seat(nodes[mine], hosts[nodes[mine]], there.index(worker_id), len(there))

    def _nodes(self) -> dict[int, str]:
        """The node of each bundle that stands on a living one."""
        table: dict[str, Any] = placement_group_table(self._groups[0])
        alive = _hosts()
        placed: dict[int, str] = table.get("bundles_to_node_id", {})
        return {number: node for number, node in placed.items() if node in alive}

    async def why_not_placed(self) -> str:
        """What the missing bundles lack, as far as it can be told."""
        rooms = await asyncio.to_thread(_rooms)
        nodes = await asyncio.to_thread(self._nodes)
        bundles = [one for n, one in enumerate(self._placement.bundles) if n not in nodes]
        lacking = Placement(spreading=self._placement.spreading, bundles=tuple(bundles))
        return shortage(lacking, rooms) or "Ray has not placed it yet"

    async def close(self) -> None:
        """Give the room back."""
        for group in self._groups:
            await asyncio.to_thread(remove_placement_group, group)


def _hosts() -> dict[str, str]:
    """The address of each living node by its Ray id."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _rooms() -> list[NodeRoom]:
    free = ray._private.state.available_resources_per_node()
    return [
        NodeRoom(
            name=node["NodeManagerAddress"],
            cpus=free.get(node["NodeID"], {}).get("CPU", 0),
            gpus=free.get(node["NodeID"], {}).get("GPU", 0),
            memory_nbytes=free.get(node["NodeID"], {}).get("memory", 0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


@asynccontextmanager
async def open_cluster(config: BatonConfig) -> AsyncIterator[RayCluster]:
    """Attach to Ray or start it, and hold room for the workers of `config`.

    Raises ConfigError where there is no such cluster, or no room in it.
    """
    placement = place_workers(
        needs_of(config),
        config.cluster.placement,
        nodes=config.cluster.nodes,
        one_host=config.transfer.data_plane == "shm",
    )
    address = ray_address(config.cluster.launcher)
    await asyncio.to_thread(_connect, address, placement)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.getsignal(number))  # Ray has put its stack traces before them
    try:
        cluster = RayCluster(config, placement)
        try:
            await cluster.reserve()
            yield cluster
        finally:
            await cluster.close()
    finally:
        await asyncio.to_thread(ray.shutdown)


def _connect(address: str, placement: Placement) -> None:
    """`ray.init`, from a thread of its own: in the main one it would take the signals."""
    options: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # As many CPUs as we ask for: on one host workers may share cores, as without Ray.
        options = {
            "num_cpus": sum(one.cpus for one in placement.bundles) + 1,
            "object_store_memory": _STORE_NBYTES,
            "include_dashboard": False,
            "_node_ip_address": _LOOPBACK,
        }
    try:
        ray.init(address=address, logging_level="error", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = (
            "no Ray could be started on this host"
            if address == "local"
            else (f"no Ray cluster at {address!r} that this host is in")
        )
        raise ConfigError(
            f"cluster.launcher: {where}: {str(error).strip().splitlines()[0]}; start one with "
            "`ray start --head` here and `ray start --address=HOST:PORT` on the other nodes"
        ) from error
