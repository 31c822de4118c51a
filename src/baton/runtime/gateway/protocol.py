"""Uvicorn's HTTP protocol with bounds that it lacks: header size, header time, no pipelines."""

import asyncio
import logging
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from baton.errors import RequestRejected
from baton.runtime.gateway.errors import error_json

logger = logging.getLogger("baton.gateway")

MAX_HEADER_NBYTES = 65_536
HEADER_TIMEOUT_S = 30.0

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


def protocol_class(is_full: Callable[[], bool]) -> type["GatewayProtocol"]:
    """The protocol of a server that drops new connections while `is_full`."""
    return type("BoundGatewayProtocol", (GatewayProtocol,), {"is_full": staticmethod(is_full)})


class GatewayProtocol(HttpToolsProtocol):
    """One client connection.

    A request that arrives while another is being answered is dropped, and the connection is closed
    after that answer. Queueing it, as uvicorn does, pauses reading, and a connection that is not
    read does not show that its client has left.
    """

    @staticmethod
    def is_full() -> bool:
        """Whether there is no room for a connection now."""
        return False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; its first request has to arrive in time."""
        super().connection_made(transport)
        if self.is_full():
            # Its descriptor is needed for a worker; the client sees a closed connection.
            logger.warning("a connection was dropped: no file descriptor is free")
            transport.abort()
        self._header_nbytes = 0
        self._pipelined = False
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._header_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._header_timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._header_nbytes = 0
        self._header_timer.cancel()
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._header_late)
        abort: dict[object, object] = {"call": self.transport.abort}
        gone: dict[object, object] = {"call": self.transport.is_closing}
        self.scope["extensions"] = {"baton.abort": abort, "baton.is_gone": gone}

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete; its handler starts."""
        self._header_timer.cancel()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._pipelined = True
            self.cycle.keep_alive = False
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if not self._pipelined:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is complete."""
        if not self._pipelined:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the same error object as everything else."""
        self._send_and_close(400, msg)

    def _header_late(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _count(self, nbytes: int) -> None:
        self._header_nbytes += nbytes
        if self._header_nbytes > MAX_HEADER_NBYTES:
            self._send_and_close(431, f"the headers exceed {MAX_HEADER_NBYTES} bytes; send less")

    def _send_and_close(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # Another answer is on its way; a second one in its middle would corrupt it.
            self.transport.close()
            return
        body = error_json(RequestRejected(message, status=status, code="invalid_http"))
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, _REASONS[status], len(body), body)
        )
        self.transport.close()
