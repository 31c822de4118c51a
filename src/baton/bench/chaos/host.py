"""The process under test: a deployment behind its gateway, told and asked over a pipe.

It is a process of its own so that the run can judge from outside, take its descriptors away, and
outlive it.
"""

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from baton.bench.chaos.orders import HostState, Order, WorkerState
from baton.bench.chaos.plan import HostPlan
from baton.core.cache import Tier
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.faults import FaultSpec
from baton.runtime.footprint import footprint
from baton.runtime.front import open_front
from baton.runtime.leftovers import leftovers

_COLLECT_S = 0.1


class _Host:
    def __init__(self, plan: HostPlan) -> None:
        self._plan = plan
        self._spared: set[str] = set()
        self._failing_arenas: set[str] = set()
        self._counters: dict[tuple[str, int], dict[str, int]] = {}

    async def run(self) -> None:
        """Serve until the other side is gone, which may be before anything is up."""
        orders: asyncio.Queue[bytes] = asyncio.Queue()
        serving = asyncio.create_task(self._serve(orders))
        hearing = asyncio.create_task(_hear(orders))
        await asyncio.wait((serving, hearing), return_when=asyncio.FIRST_COMPLETED)
        hearing.cancel()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    async def _serve(self, orders: asyncio.Queue[bytes]) -> None:
        plan = self._plan
        trace_dir = Path(plan.trace_dir) if plan.trace_dir else None
        async with (
            deploy(
                plan.config,
                lambda stage, fraction: None,
                trace_dir=trace_dir,
                router_faults=plan.faults,
                faults_of=self._faults_of,
            ) as deployment,
            open_front(plan.config, deployment) as front,
        ):
            await deployment.wait_ready(plan.config.cluster.start_timeout_s)
            tasks = [
                asyncio.create_task(deployment.watch(lambda worker_id: worker_id in self._spared)),
                asyncio.create_task(self._collect(deployment)),
                asyncio.create_task(self._obey(orders, deployment, front.port)),
                front.serving,
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks[:3]:
                    task.cancel()
                await asyncio.gather(*tasks[:3], return_exceptions=True)
            for task in done:
                task.result()

    def _faults_of(self, worker_id: str, epoch: int) -> FaultSpec | None:
        faults = self._plan.faults
        if faults is None or worker_id not in self._failing_arenas:
            return faults
        self._failing_arenas.discard(worker_id)
        return msgspec.structs.replace(faults, fail_arena=True)

    async def _collect(self, deployment: Deployment) -> None:
        """Remember the last counters of every life: a dead one cannot be asked."""
        while True:
            for view in deployment.router.node.fleet:
                if view.snapshot is not None:
                    life = (view.info.worker_id, view.info.epoch)
                    self._counters[life] = dict(view.snapshot.counters)
            await asyncio.sleep(_COLLECT_S)

    async def _obey(self, orders: asyncio.Queue[bytes], deployment: Deployment, port: int) -> None:
        """Answer orders until cancelled."""
        say(self._state(deployment, port))
        while True:
            order = msgspec.json.decode(await orders.get(), type=Order)
            match order.verb:
                case "spare":
                    self._spared.add(order.worker_id)
                case "watch":
                    self._spared.discard(order.worker_id)
                case "fail arena":
                    self._failing_arenas.add(order.worker_id)
                case "revoke":
                    deployment.router.revoke_routes("chaos")
            say(self._state(deployment, port))

    def _state(self, deployment: Deployment, port: int) -> HostState:
        router = deployment.router
        counters = Counter(router.host_counters())
        counters.update(router.node.counters)
        lives = {
            f"{worker_id}.{epoch}": counts for (worker_id, epoch), counts in self._counters.items()
        }
        dropped = [name for name, counts in lives.items() if counts.get("trace_dropped_events")]
        if router.trace.num_dropped:
            dropped.append("router")
        for counts in lives.values():
            counters.update(counts)
        return HostState(
            port=port,
            workers=tuple(
                WorkerState(
                    worker_id=view.info.worker_id,
                    role=view.info.role,
                    epoch=view.info.epoch,
                    pid=view.info.pid,
                )
                for view in router.node.fleet
            ),
            leftovers=tuple(leftovers(router.node)),
            footprint=_quiet(lambda: footprint(router.node)),
            counters=dict(counters),
            disk_blocks={
                view.info.worker_id: load.num_named
                for view in router.node.fleet
                for load in (view.snapshot.tiers if view.snapshot else ())
                if load.tier is Tier.DISK
            },
            dropped_traces=tuple(dropped),
        )


async def _hear(orders: asyncio.Queue[bytes]) -> None:
    """Take orders until the other side is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        orders.put_nowait(line)


def _quiet(read: Callable[[], dict[str, int]]) -> dict[str, int]:
    """A reading that needs descriptors or living processes, or nothing for now."""
    try:
        return read()
    except OSError:
        return {}


def say(state: HostState) -> None:
    """Write one line to whoever runs this host."""
    data = msgspec.json.encode(state) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def main() -> int:
    """Serve what the first line of standard input asks for."""
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=HostPlan)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Host(plan).run())
    except BatonError as error:
        say(HostState(port=0, workers=(), error=str(error)))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
