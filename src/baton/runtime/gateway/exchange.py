"""One HTTP request and its response on the ASGI interface."""

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from baton.config import GatewayConfig
from baton.errors import RequestRejected
from baton.runtime.gateway.errors import error_json, retry_after
from baton.runtime.gateway.trace_context import read_traceparent, traceparent
from baton.telemetry.live.spans import span_id_of, trace_id_of

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LINGER_S = 1.0
LINGER_NBYTES = 16 << 20
"""How long and how much an early refusal keeps reading, so that the client gets to see it."""

_ID_UNSAFE = re.compile(r"[^A-Za-z0-9._:\-]")
_MAX_ID_CHARS = 128

JSON = b"application/json"
LINES = b"application/jsonl"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class ClientGone(Exception):
    """The client closed its connection before the request was complete."""


class Exchange:
    """Reads the body once, writes one response, and knows the request's identities.

    `request_id` is minted here and unique; `client_request_id` is what the client calls it, used
    in logs and echoed, never as an identity.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.request_id = uuid.uuid4().hex
        self.arrival = time.perf_counter()
        self.status = 0
        self.streaming = False
        self.completed = False
        self.output_ids: tuple[str, ...] = ()
        """Ids of the requests that the router knows for this one, once there are any."""
        self.sending_since = 0.0
        """When the write now in progress began; 0.0 between writes."""
        self._send = send
        self.client_request_id = _clean_id(self.header(b"x-request-id"))
        self.trace_context = read_traceparent(self.header(b"traceparent"))

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The decoded path."""
        return str(self.scope["path"])

    def header(self, name: bytes) -> bytes:
        """A request header by its lower-case name; empty if absent."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return b""

    @property
    def media_type(self) -> bytes:
        """What the body is said to be, in lower case and without parameters."""
        return self.header(b"content-type").split(b";")[0].strip().lower()

    async def read_body(self, config: GatewayConfig) -> bytes:
        """The whole body. Raises RequestRejected 413 or 408, and ClientGone."""
        limit = config.max_body_nbytes
        length = self.header(b"content-length")
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        chunks = []
        nbytes = 0
        try:
            async with asyncio.timeout(config.body_timeout_s):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunk = message.get("body", b"")
                    nbytes += len(chunk)
                    if nbytes > limit:
                        raise _too_large(limit)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise RequestRejected(
                f"the body did not arrive within {config.body_timeout_s:g} s; send it faster",
                status=408,
                code="body_timeout",
            ) from None

    async def respond(
        self,
        status: int,
        body: bytes,
        headers: Headers | None = None,
        content_type: bytes = JSON,
    ) -> None:
        """Send a complete response."""
        lines = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        await self._start(status, [*lines, *(headers or [])])
        await self.end(body)

    async def refuse(self, error: RequestRejected, headers: Headers | None = None) -> None:
        """Send one error object."""
        lines = list(headers or [])
        wait = retry_after(error.retry_after_s)
        if wait is not None:
            lines.append((b"retry-after", wait))
        body = error_json(error)
        if error.status not in (408, 413):
            await self.respond(error.status, body, lines)
            return
        # The body was not read to its end, so the connection cannot be used again. Closing at
        # once could reset it before the client has read the answer: drain for a moment first.
        lines += [
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        await self._start(error.status, lines)
        await self.write(body)
        await self._drain_input()
        await self.end()

    async def start_stream(self, headers: Headers) -> None:
        """Send the head of an event stream."""
        lines = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        self.streaming = True
        await self._start(200, [*lines, *headers])

    async def write(self, data: bytes) -> None:
        """Send a part of the body; waits while the client reads too slowly.

        Raises ClientGone once the connection is lost: tokens that come in a row would be written
        for nobody until the event loop has a turn to say so.
        """
        if self.streaming and self._is_gone():
            await self._until_told()
            raise ClientGone
        self.sending_since = time.perf_counter()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.sending_since = 0.0

    async def end(self, data: bytes = b"") -> None:
        """Send the last part of the body."""
        self.sending_since = time.perf_counter()
        self.completed = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self.sending_since = 0.0

    async def _until_told(self) -> None:
        """Wait until the server knows, too: it complains of an answer that ends before that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await self.receive())["type"] != "http.disconnect":
                    pass

    def _is_gone(self) -> bool:
        is_gone = (self.scope.get("extensions") or {}).get("baton.is_gone")
        return is_gone is not None and bool(is_gone["call"]())

    def abort(self) -> None:
        """Drop the connection without waiting for what the client did not read."""
        abort = (self.scope.get("extensions") or {}).get("baton.abort")
        if abort is not None:
            abort["call"]()

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        public = self.client_request_id or self.request_id
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"x-request-id", public.encode()), *self._trace_headers()],
            }
        )

    def _trace_headers(self) -> Headers:
        """Which span of which trace served this, once the router knows it."""
        if not self.output_ids:
            return []
        first, context = self.output_ids[0], self.trace_context
        trace_id = int(context.trace_id, 16) if context.trace_id else trace_id_of(first)
        return [(b"traceparent", traceparent(trace_id, span_id_of(first)))]

    async def _drain_input(self) -> None:
        nbytes = 0
        try:
            async with asyncio.timeout(LINGER_S):
                while nbytes < LINGER_NBYTES:
                    message = await self.receive()
                    nbytes += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            pass


def _clean_id(raw: bytes) -> str:
    return _ID_UNSAFE.sub("", raw.decode("latin-1"))[:_MAX_ID_CHARS]


def _too_large(limit: int) -> RequestRejected:
    return RequestRejected(
        f"the body is larger than {limit} bytes; send less, or raise gateway.max_body_nbytes",
        status=413,
        code="body_too_large",
    )
