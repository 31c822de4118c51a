"""What every HTTP edge does alike: find the handler, refuse with one error, log and count."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from baton.errors import RequestRejected
from baton.runtime.gateway.errors import internal_error, shutting_down
from baton.runtime.gateway.exchange import ClientGone, Exchange, Headers, Receive, Scope, Send
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.runtime.gateway.sse import error_event

logger = logging.getLogger("baton.gateway")

CLIENT_GONE = 499
"""Counted, never sent: the client left before there was a status."""

LAST_WRITE_S = 1.0
"""How long the last event of a failed stream waits for a slow reader."""

Handler = Callable[[Exchange], Awaitable[None]]
Routes = dict[str, tuple[str, Handler]]


class HttpEdge:
    """An ASGI application over a table of routes; its subclasses fill the table."""

    def __init__(self, model_name: str) -> None:
        self.metrics = GatewayMetrics(model_name)
        self._model_name = model_name
        self._routes: Routes = {}

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
            self._note_answer(exchange, status)
            if exchange.method == "POST":
                logger.info(
                    "%s %s %d %.1f ms client_request_id=%s",
                    exchange.request_id,
                    path,
                    status,
                    (time.perf_counter() - exchange.arrival) * 1e3,
                    exchange.client_request_id or "-",
                )

    def _note_answer(self, exchange: Exchange, status: int) -> None:
        """The response is over, whatever way; an edge that traces says so."""

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


def require_json(exchange: Exchange) -> None:
    """Raise RequestRejected 415 for a body that says it is something else.

    A missing type is tolerated. Others are not: a browser may send text/plain across origins
    without asking, and a local server must not obey that.
    """
    media_type = exchange.media_type
    if media_type and media_type != b"application/json" and not media_type.endswith(b"+json"):
        raise unsupported_media_type(media_type)


def unsupported_media_type(media_type: bytes) -> RequestRejected:
    """A 415 that names the type."""
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
