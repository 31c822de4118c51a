"""Uvicorn's HTTP protocol with bounds that it lacks: header size, header time, pipelined loss."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from baton.errors import RequestRejected
from baton.runtime.gateway.errors import error_json

MAX_HEADER_NBYTES = 65_536
HEADER_TIMEOUT_S = 30.0

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class GatewayProtocol(HttpToolsProtocol):
    """One client connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; its first request has to arrive in time."""
        super().connection_made(transport)
        self._header_nbytes = 0
        self._open: list[RequestResponseCycle] = []
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._header_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of the connection, not only the newest of a pipeline."""
        self._header_timer.cancel()
        super().connection_lost(exc)
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._open.clear()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._header_nbytes = 0
        self._arm_header_timer()
        abort: dict[object, object] = {"call": self.transport.abort}
        self.scope["extensions"] = {"baton.abort": abort}

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
        super().on_headers_complete()
        self._open = [cycle for cycle in self._open if not cycle.response_complete]
        self._open.append(self.cycle)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the same error object as everything else."""
        self._send_and_close(400, msg)

    def _arm_header_timer(self) -> None:
        self._header_timer.cancel()
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._header_late)

    def _header_late(self) -> None:
        if all(cycle.response_complete for cycle in self._open):
            self.transport.close()

    def _count(self, nbytes: int) -> None:
        self._header_nbytes += nbytes
        if self._header_nbytes > MAX_HEADER_NBYTES and not self.transport.is_closing():
            self._send_and_close(431, f"the headers exceed {MAX_HEADER_NBYTES} bytes; send less")

    def _send_and_close(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = error_json(RequestRejected(message, status=status, code="invalid_http"))
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, _REASONS[status], len(body), body)
        )
        self.transport.close()
