"""`baton serve --engine vllm`: the gateway in front of vLLM servers, until a signal."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from baton import __version__
from baton.config import BatonConfig
from baton.core.vllm_manifest import VllmManifest
from baton.core.vllm_settings import addresses_of
from baton.errors import BatonError, ConfigError
from baton.integrations.vllm.identity import model_identity
from baton.runtime.cores import check_cores
from baton.runtime.deployment_record import check_manifest
from baton.runtime.gateway.server import serve_app
from baton.runtime.model_preparation import prepare_model
from baton.runtime.notice import notice
from baton.runtime.vllm.app import VllmGatewayApp
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.monitor import Monitor
from baton.runtime.vllm.processes import ServerProcesses, check_python

_POLL_S = 0.05
_FIRST_WORD_S, _NEXT_WORD_S = 3.0, 30.0
"""Whoever waits for servers hears after so long what for, and then so seldom."""
OUR_MODELS = ("smollm2", "tiny")
"""Names that only Baton knows; every other one is vLLM's to resolve."""


class VllmFront(msgspec.Struct, frozen=True):
    """A gateway that listens, and what is behind it."""

    backend: VllmBackend
    host: str
    port: int
    serving: asyncio.Task[None]
    processes: ServerProcesses | None = None

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return f"http://{self.host}:{self.port}"


async def serve_vllm(
    config: BatonConfig,
    console: Console,
    trace_dir: Path | None = None,
    manifest: VllmManifest | None = None,
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
    config: BatonConfig, console: Console, trace_dir: Path | None, manifest: VllmManifest | None
) -> None:
    console.print(
        f"baton {__version__}, configuration {config.digest}, vLLM servers, K/V moves by "
        f"{config.vllm.connector}",
        highlight=False,
    )
    async with open_vllm_front(config, trace_dir) as front:
        if front.processes is not None:
            for slot in front.processes.slots:
                cores = ",".join(map(str, slot.cores)) or "any"
                text = f"{slot.server.server_id} starts on core {cores}; its log: {slot.next_log}"
                console.print(text, highlight=False, soft_wrap=True)
        await wait_complete(front, config.cluster.start_timeout_s, manifest)
        _announce(front, console, manifest is not None)
        await until_failure(front)


def _announce(front: VllmFront, console: Console, is_verified: bool) -> None:
    record = front.backend.manifest.record
    assert record is not None  # every server has been met
    verified = ", as the manifest says" if is_verified else ""
    console.print(f"deployment {record.digest}{verified}", highlight=False)
    for server in front.backend.servers:
        load = server.load
        pool = f"{load.num_blocks} blocks of {load.block_size}" if load.num_blocks else "unknown"
        console.print(
            f"{server.server_id} at {server.url}: vLLM {server.version or '?'}, K/V pool {pool}",
            soft_wrap=True,
            highlight=False,
        )
    body = (
        f'{{"model": "{front.backend.model}", "stream": true, "temperature": 0, '
        '"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
    )
    console.print(f"ready at {front.url}; try:")
    console.print(
        f"curl -N {front.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


@asynccontextmanager
async def open_vllm_front(
    config: BatonConfig, trace_dir: Path | None = None
) -> AsyncIterator[VllmFront]:
    """Serve in front of the named servers, or of ones that start here, until the block is left.

    With `trace_dir` the gateway's events are written there, too.
    """
    folder = Path(tempfile.mkdtemp(prefix="baton-vllm-"))
    config = _with_keys(config, folder)
    backend = VllmBackend(config, trace_dir)
    monitor = Monitor(backend)
    processes: ServerProcesses | None = None
    try:
        for address in addresses_of(config.vllm):
            backend.servers.add(address)
        if not config.vllm.is_attached:
            check_cores(config)
            await check_python(config.vllm.python)
            model = await _model_argument(config.model.name)
            await _identify(backend, model)
            processes = ServerProcesses(config, backend, model, folder)
        async with _listening(config, backend, processes) as front:
            if processes is not None:
                processes.start()  # the address is ours: now the expensive part
            monitor.start()
            yield front
    finally:
        await asyncio.shield(_tear_down(monitor, processes, backend, folder))


def _with_keys(config: BatonConfig, folder: Path) -> BatonConfig:
    """Keys of their own for servers that start and end with this gateway."""
    settings = config.vllm
    if settings.connector != "baton" or settings.key_folder or settings.is_attached:
        return config
    from baton.integrations.vllm.keys import mint_keys

    mint_keys(folder / "keys")
    settings = msgspec.structs.replace(settings, key_folder=str(folder / "keys"))
    return msgspec.structs.replace(config, vllm=settings)


async def _tear_down(
    monitor: Monitor, processes: ServerProcesses | None, backend: VllmBackend, folder: Path
) -> None:
    await monitor.close()
    if processes is not None:
        await processes.stop()
    await backend.close()
    if processes is None or not processes.failure.done():
        shutil.rmtree(folder, ignore_errors=True)  # the logs of a failure are kept


async def _model_argument(name: str) -> str:
    """What vLLM loads: a folder for the names that are ours, else a name that it resolves."""
    if name in OUR_MODELS or Path(name).exists():
        return str(await prepare_model(name, lambda stage, fraction: None))
    return name


async def _identify(backend: VllmBackend, model: str) -> None:
    """Let the manifest name the content of a folder that every server here loads."""
    if Path(model).is_dir():
        name = backend.config.model.name
        with contextlib.suppress(ConfigError):  # what has no hash is unknown in the manifest
            backend.manifest.load(await asyncio.to_thread(model_identity, model, name))


@asynccontextmanager
async def _listening(
    config: BatonConfig, backend: VllmBackend, processes: ServerProcesses | None
) -> AsyncIterator[VllmFront]:
    app = VllmGatewayApp(backend, config.gateway, version=__version__)
    gateway = config.gateway
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_app(
            app,
            gateway.host,
            gateway.port,
            on_started=lambda host, port: address.set_result((host, port)),
        )
    )
    try:
        while not (serving.done() or address.done()):
            await asyncio.wait([serving], timeout=_POLL_S)
        if serving.done():
            serving.result()
            raise BatonError("the gateway ended before it listened")
        yield VllmFront(backend, *address.result(), serving, processes)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def wait_complete(
    front: VllmFront, timeout_s: float, manifest: VllmManifest | None = None
) -> None:
    """Return when all servers answer and some pair hands over; BatonError with what is missing.

    With `manifest` ConfigError, as soon as all have answered, with every field that differs.
    """
    is_checked = manifest is None
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    word_s = loop.time() + _FIRST_WORD_S
    while True:
        missing = front.backend.incomplete()
        record = front.backend.manifest.record
        if not is_checked and manifest is not None and record is not None:
            check_manifest(manifest, record.manifest)
            is_checked = True
        if not missing:
            return
        _raise_failure(front)
        if loop.time() > deadline_s:
            raise BatonError(f"not ready after {timeout_s:.0f} s: {missing}")
        if loop.time() > word_s:
            word_s = loop.time() + _NEXT_WORD_S
            left_s = deadline_s - loop.time()
            notice("gateway", f"waits up to {left_s:.0f} s more; not ready: {missing}")
        await asyncio.sleep(_POLL_S)


async def until_failure(front: VllmFront) -> None:
    """Return never; raises BatonError when the servers or the gateway cannot go on."""
    waits: list[asyncio.Future[Any]] = [front.serving]
    if front.processes is not None:
        waits.append(front.processes.failure)
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    _raise_failure(front)


def _raise_failure(front: VllmFront) -> None:
    if front.processes is not None and front.processes.failure.done():
        raise BatonError(front.processes.failure.result())
    if front.serving.done():
        front.serving.result()
        raise BatonError("the gateway ended")
