"""Routes of the HTTP edge as one plain ASGI application."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from baton.config import GatewayConfig
from baton.errors import RequestRejected
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.errors import internal_error, shutting_down
from baton.runtime.gateway.exchange import (
    TEXT,
    ClientGone,
    Exchange,
    Headers,
    Receive,
    Scope,
    Send,
)
from baton.runtime.gateway.generate import RETRY_NOT_READY_S, Generation
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.runtime.gateway.sse import error_event
from baton.runtime.gateway.tenants import Tenants
from baton.runtime.gateway.tokenizer import Tokenizer

logger = logging.getLogger("baton.gateway")

CLIENT_GONE = 499
"""Counted, never sent: the client left before there was a status."""

LAST_WRITE_S = 1.0
"""How long the last event of a failed stream waits for a slow reader."""

Handler = Callable[[Exchange], Awaitable[None]]


class GatewayApp:
    """The ASGI application; one instance serves one model."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        config: GatewayConfig,
        *,
        model_name: str,
        version: str,
    ) -> None:
        self.metrics = GatewayMetrics(model_name)
        self._backend = backend
        self._tokenizer = tokenizer
        self._config = config
        self._tenants = Tenants(config)
        self._model_name = model_name
        self._version = version
        self._created = int(time.time())
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
            "/v1/models": ("GET", self._models),
            f"/v1/models/{model_name}": ("GET", self._model),
            "/health": ("GET", self._health),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics_text),
            "/cache": ("GET", self._cache),
            "/cache/clear": ("POST", self._clear_cache),
            "/version": ("GET", self._version_info),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(Exchange(scope, receive, send))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.path if exchange.path in self._routes else "other"
        try:
            handler = self._find(exchange)
            await handler(exchange)
        except ClientGone:
            self.metrics.disconnects["disconnect"] += 1
        except RequestRejected as error:
            if exchange.streaming:
                logger.warning("%s failed in its stream: %s", exchange.request_id, error.message)
            await self._refuse(exchange, error)
        except asyncio.CancelledError:
            # Only the server's shutdown cancels from outside, and it wants nothing but the end.
            await self._refuse(exchange, shutting_down())
        except Exception:
            logger.exception(
                "%s failed; client_request_id=%s",
                exchange.request_id,
                exchange.client_request_id or "-",
            )
            await self._refuse(exchange, internal_error(exchange.request_id))
        finally:
            status = exchange.status or CLIENT_GONE
            self.metrics.responses[path, str(status)] += 1
            if exchange.method == "POST":
                logger.info(
                    "%s %s %d %.1f ms client_request_id=%s",
                    exchange.request_id,
                    path,
                    status,
                    (time.perf_counter() - exchange.arrival) * 1e3,
                    exchange.client_request_id or "-",
                )

    async def _refuse(self, exchange: Exchange, error: RequestRejected) -> None:
        if exchange.streaming and not exchange.completed:
            # The status is long sent: an error event ends the stream, and never [DONE].
            try:
                async with asyncio.timeout(LAST_WRITE_S):
                    await exchange.end(error_event(error))
            except TimeoutError:
                exchange.abort()
            return
        if exchange.status:
            exchange.abort()
            return
        headers: Headers = []
        if error.status == 405:
            headers.append((b"allow", self._routes[exchange.path][0].encode()))
        await exchange.refuse(error, headers)

    def _find(self, exchange: Exchange) -> Handler:
        route = self._routes.get(exchange.path)
        if route is None and exchange.path.startswith("/v1/models/"):
            raise RequestRejected(
                f"model is {exchange.path[11:111]!r}, which is not served here; use "
                f"{self._model_name!r}",
                status=404,
                param="model",
                code="model_not_found",
            )
        if route is None:
            raise RequestRejected(
                f"there is nothing at {exchange.path[:100]!r}; use one of "
                f"{', '.join(self._routes)}",
                status=404,
                code="unknown_path",
            )
        method, handler = route
        if exchange.method != method and (exchange.method, method) != ("HEAD", "GET"):
            raise RequestRejected(
                f"{exchange.path} does not take {exchange.method[:20]}; use {method}",
                status=405,
                code="method_not_allowed",
            )
        return handler

    async def _chat(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=True)

    async def _completions(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=False)

    async def _generate(self, exchange: Exchange, *, chat: bool) -> None:
        media_type = exchange.media_type
        # A missing type is tolerated. Others are not: a browser may send text/plain across origins
        # without asking, and a local server must not obey that.
        if media_type and media_type != b"application/json" and not media_type.endswith(b"+json"):
            raise _unsupported_media_type(media_type)
        await Generation(
            exchange,
            chat=chat,
            backend=self._backend,
            tokenizer=self._tokenizer,
            config=self._config,
            model_name=self._model_name,
            metrics=self.metrics,
            tenants=self._tenants,
        ).serve()

    async def _models(self, exchange: Exchange) -> None:
        body = {"object": "list", "data": [self._model_object()]}
        await exchange.respond(200, msgspec.json.encode(body))

    async def _model(self, exchange: Exchange) -> None:
        await exchange.respond(200, msgspec.json.encode(self._model_object()))

    def _model_object(self) -> dict[str, object]:
        info = self._backend.info
        return {
            "id": self._model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "baton",
            "root": info.name if info else self._model_name,
            "max_model_len": info.max_model_len if info else None,
        }

    async def _health(self, exchange: Exchange) -> None:
        await exchange.respond(200, b'{"status":"ok"}')

    async def _ready(self, exchange: Exchange) -> None:
        reason = self._backend.ready()
        if not reason and self._backend.info is None:
            reason = "no worker has loaded the model yet"
        if reason:
            raise RequestRejected(
                f"not ready: {reason}",
                status=503,
                code="not_ready",
                retry_after_s=RETRY_NOT_READY_S,
            )
        await exchange.respond(200, b'{"status":"ready"}')

    async def _metrics_text(self, exchange: Exchange) -> None:
        body = self.metrics.render() + self._backend.metrics()
        await exchange.respond(200, body, content_type=TEXT)

    async def _cache(self, exchange: Exchange) -> None:
        await exchange.respond(200, msgspec.json.encode(self._backend.cache()))

    async def _clear_cache(self, exchange: Exchange) -> None:
        if not self._config.allow_cache_clear:
            raise RequestRejected(
                "gateway.allow_cache_clear is false; serve with --set gateway.allow_cache_clear="
                "true where only operators reach this address",
                status=403,
                code="cache_clear_not_allowed",
            )
        if exchange.media_type != b"application/json":
            # A page in an operator's browser can send everything else without asking.
            raise _unsupported_media_type(exchange.media_type)
        await exchange.read_body(self._config)
        generation = self._backend.clear_cache()
        logger.info("%s cleared the cache: generation %d", exchange.request_id, generation)
        await exchange.respond(200, msgspec.json.encode({"generation": generation}))

    async def _version_info(self, exchange: Exchange) -> None:
        body = {
            "version": self._version,
            "model": self._model_name,
            "status": self._backend.status(),
        }
        await exchange.respond(200, msgspec.json.encode(body, enc_hook=str))


def create_app(
    backend: Backend,
    tokenizer: Tokenizer,
    config: GatewayConfig,
    *,
    model_name: str,
    version: str,
) -> GatewayApp:
    """The application that serves `backend` under `model_name`."""
    return GatewayApp(backend, tokenizer, config, model_name=model_name, version=version)


def _unsupported_media_type(media_type: bytes) -> RequestRejected:
    return RequestRejected(
        f"content-type is {media_type.decode('latin-1')[:60]!r}; use application/json",
        status=415,
        param="content-type",
        code="unsupported_media_type",
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
