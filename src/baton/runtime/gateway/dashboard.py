"""The page at /dashboard, its feed, and the page of one request; all of it is read-only."""

from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from baton.errors import RequestRejected
from baton.runtime.gateway.exchange import Exchange

_PAGE = Path(__file__).with_name("dashboard.html")
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        b"connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class Shown(Protocol):
    """Whatever the page shows."""

    def dashboard(self) -> Struct:
        """What it shows now."""
        ...

    def dashboard_request(self, request_id: str) -> Struct | None:
        """Everything that is kept of one request; None if it is not."""
        ...


class Dashboard:
    """Answers the three paths of the page."""

    def __init__(self, backend: Shown) -> None:
        self._backend = backend
        self._page = _PAGE.read_bytes()

    async def page(self, exchange: Exchange) -> None:
        """The page itself: one file, nothing from elsewhere."""
        await exchange.respond(200, self._page, _HEADERS, b"text/html; charset=utf-8")

    async def feed(self, exchange: Exchange) -> None:
        """What it shows now."""
        body = msgspec.json.encode(self._backend.dashboard())
        await exchange.respond(200, body, _HEADERS)

    async def request(self, exchange: Exchange) -> None:
        """One request by `?id=`. Raises RequestRejected 404 for one that is not kept."""
        query = parse_qs(bytes(exchange.scope.get("query_string", b"")).decode("latin-1"))
        request_id = query.get("id", [""])[0]
        detail = self._backend.dashboard_request(request_id)
        if detail is None:
            raise RequestRejected(
                f"no request {request_id[:64]!r} is kept; telemetry.history_requests bounds how "
                "many are",
                status=404,
                param="id",
                code="request_not_kept",
            )
        await exchange.respond(200, msgspec.json.encode(detail), _HEADERS)
