"""A deployment behind its HTTP gateway: the one way to put the two together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from baton import __version__
from baton.config import BatonConfig
from baton.errors import BatonError
from baton.runtime.deployment import Deployment
from baton.runtime.gateway.app import create_app
from baton.runtime.gateway.server import serve_app
from baton.runtime.gateway.tokenizer import Tokenizer

_POLL_S = 0.02


class Front(msgspec.Struct, frozen=True):
    """Where the gateway listens, and the task that serves it."""

    host: str
    port: int
    serving: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return f"http://{self.host}:{self.port}"


@asynccontextmanager
async def open_front(
    config: BatonConfig, deployment: Deployment, tokenizer: Tokenizer | None = None
) -> AsyncIterator[Front]:
    """Serve until the block is left. Raises ConfigError when the address cannot be used."""
    app = create_app(
        deployment.router,
        tokenizer or Tokenizer.load(deployment.model_path),
        config.gateway,
        model_name=config.model.name,
        version=__version__,
    )
    gateway = config.gateway
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_app(
            app,
            gateway.host,
            gateway.port,
            is_full=lambda: deployment.router.descriptors.is_short,
            on_started=lambda host, port: address.set_result((host, port)),
        )
    )
    try:
        while not (serving.done() or address.done()):
            await asyncio.wait([serving], timeout=_POLL_S)
        if serving.done():
            serving.result()
            raise BatonError("the gateway ended before it listened")
        yield Front(*address.result(), serving)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
