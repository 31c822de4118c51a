"""A deployment behind a real gateway, in a process of its own, that notes when requests and tokens
pass between gateway and router.

The first line of standard input is the order, the first answer the port; at the end of the input it
says what it noted.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import uvloop

from baton import __version__
from baton.config import BatonConfig
from baton.core.delivery import Delivery, Tokens
from baton.core.layout import ModelInfo
from baton.core.request import Request
from baton.errors import BatonError
from baton.runtime.clock import now_us
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.gateway import Tokenizer, create_app, serve_app
from baton.runtime.router_host import RouterHost
from baton.signals import end_with_parent


class FrontOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve, and where processes write their traces."""

    config: BatonConfig
    trace_dir: str
    parent_pid: int


class Passed(msgspec.Struct, kw_only=True):
    """One request, on the clock of this machine."""

    request_id: str
    """As the nodes name it."""
    submitted_us: int
    token_us: list[int]
    """When each delivery of tokens left the router."""


class FrontSays(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer: the port at first, in the end what passed, by the name that the client gave."""

    port: int = 0
    passed: dict[str, Passed] = {}
    error: str = ""


class NotingBackend:
    """The router as the gateway sees it; what passes is noted."""

    def __init__(self, router: RouterHost) -> None:
        self._router = router
        self.passed: dict[str, Passed] = {}
        self.cancel = router.cancel
        self.observe = router.observe
        self.ready = router.ready
        self.status = router.status
        self.deployment = router.deployment
        self.cache = router.cache
        self.clear_cache = router.clear_cache
        self.drain_worker = router.drain_worker
        self.traces = router.traces
        self.dashboard = router.dashboard
        self.dashboard_request = router.dashboard_request
        self.metrics = router.metrics

    @property
    def info(self) -> ModelInfo | None:
        """The model that the workers serve."""
        return self._router.info

    async def submit(self, request: Request) -> AsyncIterator[Delivery]:
        """The router's deliveries."""
        one = Passed(request_id=request.request_id, submitted_us=now_us(), token_us=[])
        self.passed[request.client_request_id] = one
        async for delivery in self._router.submit(request):
            if isinstance(delivery, Tokens):
                one.token_us.append(now_us())
            yield delivery


async def _serve(order: FrontOrder) -> None:
    config = order.config
    trace_dir = Path(order.trace_dir)
    async with deploy(config, lambda *_: None, trace_dir=trace_dir) as deployment:
        await deployment.wait_ready(config.cluster.start_timeout_s)
        backend = NotingBackend(deployment.router)
        serving = asyncio.create_task(_listen(config, deployment, backend))
        ended = asyncio.create_task(_wait_for_end())
        done, _ = await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        ended.cancel()
        await asyncio.gather(serving, ended, return_exceptions=True)
        if serving in done:
            raise BatonError(f"the gateway ended: {serving.exception()}")
        _say(FrontSays(passed=backend.passed))


async def _listen(config: BatonConfig, deployment: Deployment, backend: NotingBackend) -> None:
    app = create_app(
        backend,
        Tokenizer.load(deployment.model_path),
        config.gateway,
        model_name=config.model.name,
        version=__version__,
    )
    await serve_app(
        app,
        "127.0.0.1",
        0,
        on_started=lambda _, port: _say(FrontSays(port=port)),
        shutdown_s=1,
    )


async def _wait_for_end() -> None:
    """Until the parent closes standard input."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def _say(answer: FrontSays) -> None:
    data = msgspec.json.encode(answer) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def main() -> int:
    """Serve what the first line orders."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=FrontOrder)
    end_with_parent(order.parent_pid)
    try:
        uvloop.run(_serve(order))
    except BatonError as error:
        _say(FrontSays(error=str(error)))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
