"""A deployment: model, workers and router, up and down as a whole."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from baton.config import BatonConfig
from baton.errors import BatonError
from baton.runtime.dataplane.choice import settle_plane
from baton.runtime.descriptors import raise_descriptor_limit
from baton.runtime.faults import FaultSpec
from baton.runtime.launch.hosts import open_hosts
from baton.runtime.model_preparation import Progress, prepare_model
from baton.runtime.notice import notice
from baton.runtime.router_host import RouterHost
from baton.runtime.supervisor import Supervisor
from baton.runtime.trace_log import make_trace_dir

_WATCH_S = 0.5
_DRAIN_POLL_S = 0.1
_SETTLE_S = 0.5
"""Two heartbeats and a little."""
_RUNTIME_PREFIX = "baton-run-"


class Deployment:
    """Running workers behind a router."""

    def __init__(
        self, router: RouterHost, supervisor: Supervisor, model_path: Path, runtime_dir: Path
    ) -> None:
        self.router = router
        self.supervisor = supervisor
        self.model_path = model_path
        self.runtime_dir = runtime_dir
        self._draining: set[asyncio.Task[None]] = set()
        router.on_drain = self.drain
        router.slot_of = supervisor.role_of

    def drain(self, worker_id: str, epoch: int, timeout_s: float) -> None:
        """Remove a worker that the router gives nothing new, once it is idle or after so long."""
        task = asyncio.create_task(self._drain(worker_id, epoch, timeout_s))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, worker_id: str, epoch: int, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        await asyncio.sleep(_SETTLE_S)  # its next heartbeat counts what it was given last
        while left := self.router.outstanding(worker_id, epoch):
            if loop.time() > deadline_s:
                shown = ", ".join(left[:3])
                notice(worker_id, f"is removed after {timeout_s:g} s with {shown}; they go on")
                break
            await asyncio.sleep(_DRAIN_POLL_S)
        await self.supervisor.remove(worker_id)
        notice(worker_id, "was drained and has gone")

    @property
    def failure(self) -> str:
        """Why this deployment cannot go on, by its workers or its router; "" while it can."""
        failure = self.supervisor.failure
        return failure.result() if failure.done() else self.router.failure

    async def wait_ready(self, timeout_s: float) -> None:
        """Return when a pair can serve; raises BatonError with the reason when it cannot."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            if self.failure:
                raise BatonError(self.failure)
            expected = len(self.supervisor.workers)
            if not self.router.ready() and len(list(self.router.node.fleet)) == expected:
                return
            if asyncio.get_running_loop().time() > deadline:
                reason = self.router.ready() or "some workers are not up"
                raise BatonError(f"not ready after {timeout_s:.0f} s: {reason}")
            await asyncio.sleep(0.02)

    async def watch(self, is_spared: Callable[[str], bool] = lambda worker_id: False) -> None:
        """End workers that live but do not answer; returns only when the deployment failed.

        A spared worker may be silent; this is for those who look what follows from it.
        """
        while not self.failure:
            for worker_id, reason in self.router.silent_workers().items():
                if not is_spared(worker_id):
                    self.supervisor.kill(worker_id, reason)
            await asyncio.sleep(_WATCH_S)
        raise BatonError(self.failure)


@asynccontextmanager
async def deploy(
    config: BatonConfig,
    progress: Progress,
    *,
    trace_dir: Path | None = None,
    start_workers: bool = True,
    router_faults: FaultSpec | None = None,
    faults_of: Callable[[str, int], FaultSpec | None] = lambda worker_id, epoch: None,
) -> AsyncIterator[Deployment]:
    """Bring a deployment up; on leaving, every process and every shared segment is gone.

    Without `start_workers` the caller starts them, once what else may fail quickly has not.
    Faults are for chaos runs: `faults_of(worker_id, epoch)` is asked at the start of each life.
    """
    config = settle_plane(config)
    config_digest = config.digest  # of what was asked for: that of other hosts is the same
    async with open_hosts(config) as hosts:
        config = hosts.config
        raise_descriptor_limit()
        model_path = await prepare_model(config.model.name, progress)
        if trace_dir is not None:
            make_trace_dir(trace_dir)
        _sweep_runtime_dirs()
        runtime_dir = Path(tempfile.mkdtemp(prefix=f"{_RUNTIME_PREFIX}{os.getpid()}-"))
        router = RouterHost(
            config, runtime_dir, trace_dir, faults=router_faults, config_digest=config_digest
        )
        supervisor = Supervisor(
            config,
            hosts.launcher(model_path),
            runtime_dir,
            router.worker_lost,
            trace_dir,
            door=router.door,
            issuer=router.issuer,
            faults_of=faults_of,
        )
        try:
            if start_workers:
                supervisor.start()
            yield Deployment(router, supervisor, model_path, runtime_dir)
        finally:
            await asyncio.shield(_tear_down(supervisor, router, runtime_dir))


def _sweep_runtime_dirs() -> None:
    """Remove the sockets of deployments whose process is dead; a killed one cannot do it."""
    for path in Path(tempfile.gettempdir()).glob(f"{_RUNTIME_PREFIX}*-*"):
        pid = path.name.removeprefix(_RUNTIME_PREFIX).partition("-")[0]
        dead = pid.isdigit() and not Path(f"/proc/{pid}").exists()
        if dead and path.is_dir() and path.stat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)


async def _tear_down(supervisor: Supervisor, router: RouterHost, runtime_dir: Path) -> None:
    await supervisor.stop()
    await router.close()
    shutil.rmtree(runtime_dir, ignore_errors=True)
