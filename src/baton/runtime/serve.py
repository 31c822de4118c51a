"""`baton serve`: the deployment behind the HTTP gateway, with a status screen, until a signal."""

import asyncio
import contextlib
import signal
from pathlib import Path

from rich.console import Console
from rich.live import Live

from baton import __version__
from baton.config import BatonConfig
from baton.core.deployment_manifest import DeploymentManifest
from baton.core.units import shown_nbytes
from baton.runtime.dataplane.choice import settle_plane
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.deployment_record import check_manifest
from baton.runtime.front import open_front
from baton.runtime.progress import StartProgress
from baton.runtime.status import StatusScreen
from baton.runtime.tiers import tier_capacity

_REFRESH_S = 0.5
_POLL_S = 0.1


async def serve(
    config: BatonConfig,
    console: Console,
    trace_dir: Path | None = None,
    manifest: DeploymentManifest | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. Raises BatonError when it cannot start or go on.

    With `manifest` the deployment is held to it before it says that it is ready.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(_run(config, console, trace_dir, manifest))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        console.print("stopping; open streams get a few seconds to end")
        running.cancel()
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _run(
    config: BatonConfig,
    console: Console,
    trace_dir: Path | None,
    manifest: DeploymentManifest | None,
) -> None:
    config = settle_plane(config)
    console.print(
        f"baton {__version__}, configuration {config.digest}, K/V moves by "
        f"{config.transfer.data_plane}",
        highlight=False,
    )
    with StartProgress(console) as progress:
        model = f"model {config.model.name}"

        def on_progress(stage: str, fraction: float) -> None:
            progress.update(model, stage, fraction)

        async with deploy(
            config, on_progress, trace_dir=trace_dir, start_workers=False
        ) as deployment:
            progress.update(model, "ready", 1.0)
            await _serve_deployment(config, console, deployment, progress, manifest)


async def _serve_deployment(
    config: BatonConfig,
    console: Console,
    deployment: Deployment,
    progress: StartProgress,
    manifest: DeploymentManifest | None,
) -> None:
    async with open_front(config, deployment) as front:
        deployment.supervisor.start()  # the address is ours: now the expensive part
        await _wait_ready(config, deployment, progress)
        _verify(deployment, manifest, console)
        _announce(config, console, deployment, front.url)
        tasks = [asyncio.create_task(deployment.watch())]
        if console.is_terminal:
            tasks.append(asyncio.create_task(_show(config, console, deployment, front.url)))
        try:
            done, _ = await asyncio.wait(
                [front.serving, *tasks], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_ready(config: BatonConfig, deployment: Deployment, progress: StartProgress) -> None:
    waiting = asyncio.create_task(deployment.wait_ready(config.cluster.start_timeout_s))
    try:
        while not waiting.done():
            for worker in deployment.supervisor.workers:
                progress.update(worker.worker_id, worker.report.stage, worker.report.fraction)
            await asyncio.wait([waiting], timeout=_POLL_S)
        waiting.result()
    finally:
        waiting.cancel()
    progress.stop()


def _verify(deployment: Deployment, manifest: DeploymentManifest | None, console: Console) -> None:
    record = deployment.router.deployment()
    assert record is not None  # every worker has joined
    if manifest is not None:
        check_manifest(manifest, record.manifest)
    verified = ", as the manifest says" if manifest is not None else ""
    console.print(f"deployment {record.digest}{verified}", highlight=False)


def _announce(config: BatonConfig, console: Console, deployment: Deployment, url: str) -> None:
    for worker in deployment.supervisor.workers:
        cores = ",".join(map(str, worker.cores)) or "any"
        host = "" if config.cluster.launcher == "local" else f"{worker.host}, "
        view = deployment.router.node.fleet.get(worker.worker_id)
        pool = ""
        if view is not None:
            layout = view.info.model.layout
            nbytes = view.info.num_blocks * layout.bytes_per_block
            tiers = str(tier_capacity(config.cache, layout))
            pool = f"K/V pool of {view.info.num_blocks} blocks ({shown_nbytes(nbytes)})"
            pool += f", {tiers}; " if tiers else "; "
        console.print(
            f"{worker.worker_id} on {host}core {cores}: {pool}{worker.deterministic_report}",
            soft_wrap=True,
            highlight=False,
        )
    body = (
        f'{{"model": "{config.model.name}", "stream": true, "temperature": 0, '
        '"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
    )
    console.print(f"ready at {url}; try:")
    console.print(
        f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


async def _show(config: BatonConfig, console: Console, deployment: Deployment, url: str) -> None:
    screen = StatusScreen(config, deployment, url)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(screen.render(), refresh=True)
            await asyncio.sleep(_REFRESH_S)
