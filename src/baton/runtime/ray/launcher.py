"""Starts lives of workers as actors in the bundles of a placement group."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from baton import __version__
from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.policy.worker_placement import Need
from baton.runtime.launch import LifeLost
from baton.runtime.ray.cluster import RayCluster, Seat
from baton.runtime.ray.inquest import Inquest
from baton.runtime.ray.keeper import NUM_CALLS, Keeper
from baton.runtime.ray.life import RayLife
from baton.runtime.ray.orders import Prepared, SiteFacts, SiteOrder, Started
from baton.runtime.spec import WorkerSpec


class RaySite:
    """A keeper that waits for its worker. See `Site`."""

    def __init__(self, keeper: Any, host: str, facts: SiteFacts, model_path: Path) -> None:
        self._keeper = keeper
        self.host = host
        self.cores = facts.cores
        self.public_key = facts.public_key
        self.model_path = model_path

    async def start(self, spec: WorkerSpec) -> RayLife:
        """See `Site.start`."""
        try:
            answer = await self._keeper.start.remote(msgspec.json.encode(spec))
        except ray.exceptions.RayError as lost:
            raise LifeLost(str(lost).strip().splitlines()[0]) from lost
        except asyncio.CancelledError:
            self.leave()
            raise
        started = msgspec.msgpack.decode(answer, type=Started)
        if started.mark is None:
            self.leave()
            raise OSError(started.error)
        return RayLife(self._keeper, Inquest(started.mark, self.host))

    def leave(self) -> None:
        """See `Site.leave`."""
        ray.kill(self._keeper)


class RayLauncher:
    """See `Launcher`. One actor for each life: where a node is lost, Ray finds another one."""

    def __init__(self, config: BatonConfig, cluster: RayCluster) -> None:
        self._config = config
        self._cluster = cluster
        self._models: dict[str, asyncio.Task[Path]] = {}
        """By node: the model is prepared there once."""

    async def take_site(self, ordinal: int) -> RaySite:
        """See `Launcher.take_site`."""
        need = self._cluster.needs[ordinal]
        seat = await self._cluster.seat(need.worker_id)
        order = SiteOrder(
            host=seat.host,
            place=seat.place,
            num_workers=seat.num_workers,
            threads=self._config.worker.threads,
            pin_cores=self._config.cluster.pin_cores,
        )
        keeper = await asyncio.to_thread(self._create, need)
        try:
            async with asyncio.timeout(self._config.cluster.place_timeout_s):
                facts = msgspec.msgpack.decode(
                    await keeper.facts.remote(msgspec.msgpack.encode(order)), type=SiteFacts
                )
            _check(need, seat.host, facts)
            return RaySite(keeper, seat.host, facts, await self._model_on(seat, keeper))
        except TimeoutError:
            ray.kill(keeper)
            short = await self._cluster.why_not_placed()
            raise LifeLost(f"no node took it within the time: {short}") from None
        except ray.exceptions.RayError as error:
            ray.kill(keeper)
            raise LifeLost(str(error).strip().splitlines()[-1]) from error
        except BaseException:
            ray.kill(keeper)
            raise

    def sweep(self) -> None:
        """See `Launcher.sweep`: keepers do it on their nodes."""

    def _create(self, need: Need) -> Any:
        group, bundle = self._cluster.bundle_of(need.worker_id)
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=bundle
        )
        options = {
            "num_cpus": need.cpus,
            "num_gpus": need.gpus,
            "memory": need.memory_nbytes,
            "max_concurrency": NUM_CALLS,
            "scheduling_strategy": strategy,
        }
        return ray.remote(Keeper).options(**options).remote()

    async def _model_on(self, seat: Seat, keeper: Any) -> Path:
        task = self._models.get(seat.node_id)
        if task is None or (task.done() and task.exception() is not None):
            task = asyncio.create_task(self._prepare(seat.host, keeper))
            self._models[seat.node_id] = task
        return await asyncio.shield(task)

    async def _prepare(self, host: str, keeper: Any) -> Path:
        answer = await keeper.prepare.remote(self._config.model.name)
        prepared = msgspec.msgpack.decode(answer, type=Prepared)
        if prepared.error:
            raise ConfigError(f"on node {host}: {prepared.error}")
        return Path(prepared.path)


def _check(need: Need, host: str, facts: SiteFacts) -> None:
    if facts.version != __version__:
        raise ConfigError(
            f"node {host} has kvbaton {facts.version}, this process {__version__}; install "
            "the same version on every node"
        )
    if facts.error:
        raise ConfigError(f"{need.worker_id} on node {facts.error}")
