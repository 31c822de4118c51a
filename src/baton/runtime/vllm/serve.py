"""`baton serve --engine vllm`: the gateway in front of vLLM servers, until a signal."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from rich.console import Console

from baton import __version__
from baton.config import BatonConfig
from baton.core.vllm_settings import addresses_of
from baton.errors import BatonError
from baton.runtime.gateway.server import serve_app
from baton.runtime.vllm.app import VllmGatewayApp
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.connector import NixlConnector
from baton.runtime.vllm.monitor import Monitor

_POLL_S = 0.05


class VllmFront(msgspec.Struct, frozen=True):
    """A gateway that listens, and what is behind it."""

    backend: VllmBackend
    host: str
    port: int
    serving: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return f"http://{self.host}:{self.port}"


async def serve_vllm(config: BatonConfig, console: Console) -> None:
    """Serve until SIGINT or SIGTERM. Raises BatonError when it cannot start or go on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(_run(config, console))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        console.print("stopping; open streams get a few seconds to end")
        running.cancel()
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _run(config: BatonConfig, console: Console) -> None:
    console.print(
        f"baton {__version__}, configuration {config.digest}, vLLM servers, K/V moves by "
        f"{config.vllm.connector}",
        highlight=False,
    )
    async with open_vllm_front(config) as front:
        await wait_complete(front.backend, config.cluster.start_timeout_s, front.serving)
        _announce(front, console)
        await front.serving


def _announce(front: VllmFront, console: Console) -> None:
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
async def open_vllm_front(config: BatonConfig) -> AsyncIterator[VllmFront]:
    """Serve in front of the named servers until the block is left."""
    backend = VllmBackend(config, NixlConnector())
    monitor = Monitor(backend)
    try:
        for address in addresses_of(config.vllm):
            backend.servers.add(address)
        async with _listening(config, backend) as front:
            monitor.start()
            yield front
    finally:
        await monitor.close()
        await backend.close()


@asynccontextmanager
async def _listening(config: BatonConfig, backend: VllmBackend) -> AsyncIterator[VllmFront]:
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
        yield VllmFront(backend, *address.result(), serving)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def wait_complete(
    backend: VllmBackend, timeout_s: float, serving: asyncio.Task[None] | None = None
) -> None:
    """Return when all servers answer and some pair hands over; BatonError with what is missing."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while missing := backend.incomplete():
        if serving is not None and serving.done():
            serving.result()
            raise BatonError("the gateway ended")
        if loop.time() > deadline_s:
            raise BatonError(f"not ready after {timeout_s:.0f} s: {missing}")
        await asyncio.sleep(_POLL_S)
