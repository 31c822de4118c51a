"""HTTP to the servers: every request has a deadline, and leaving early closes its connection.

A closed connection is how a vLLM server learns that nobody waits, and aborts the request.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from baton.runtime.vllm.leg import LegFailed
from baton.runtime.vllm.servers import Server

Headers = Mapping[str, str]

CONNECT_S = 5.0
KEEP_ALIVE_S = 3.0
"""Less than the 5 s of uvicorn, so that no request goes into a connection that is closing."""
MAX_EVENT_NBYTES = 16 << 20
_READ_NBYTES = 1 << 16


class HttpClient:
    """One session for all servers of a deployment."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=True,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def get(self, url: str, timeout_s: float) -> tuple[int, bytes]:
        """Status and body; OSError, TimeoutError or aiohttp.ClientError where there is none."""
        async with asyncio.timeout(timeout_s), self._session.get(url) as response:
            return response.status, await response.read()

    @asynccontextmanager
    async def post(
        self, leg: str, server: Server, path: str, body: bytes, headers: Headers, wait_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose status is 200, within `wait_s`. Raises LegFailed."""
        name = server.server_id
        response: aiohttp.ClientResponse | None = None
        try:
            async with _failures(leg, server), server.guard(wait_s):
                url = server.url + path
                response = await self._session.post(url, data=body, headers=headers)
                if response.status != 200:
                    text = await response.read()
                    raise LegFailed(leg, name, f"status_{response.status}", response.status, text)
            yield response
        finally:
            if response is not None:
                response.close()


@asynccontextmanager
async def _failures(leg: str, server: Server) -> AsyncIterator[None]:
    """Every way in which a server may not answer, as the one exception."""
    name = server.server_id
    try:
        yield
    except TimeoutError as error:
        reason = "timeout" if server.is_up else "server_down"
        raise LegFailed(leg, name, reason) from error
    except aiohttp.ClientConnectorError as error:
        raise LegFailed(leg, name, "connect") from error
    except (aiohttp.ClientError, OSError) as error:
        raise LegFailed(leg, name, "cut") from error


async def read_all(
    response: aiohttp.ClientResponse, leg: str, server: Server, wait_s: float
) -> bytes:
    """The rest of a body. Raises LegFailed."""
    async with _failures(leg, server), server.guard(wait_s):
        return await response.read()


async def events_of(
    response: aiohttp.ClientResponse, leg: str, server: Server, first_s: float, next_s: float
) -> AsyncGenerator[bytes, None]:
    """Server-sent events with their blank lines, as they were sent.

    Raises LegFailed "timeout" when one does not come in time, and "cut" for a half one.
    """
    buffered = b""
    wait_s = first_s
    while True:
        async with _failures(leg, server), server.guard(wait_s):
            data = await response.content.read(_READ_NBYTES)
        if not data:
            if buffered.strip():
                raise LegFailed(leg, server.server_id, "cut")
            return
        *events, buffered = (buffered + data).split(b"\n\n")
        for event in events:
            wait_s = next_s
            yield event + b"\n\n"
        if len(buffered) > MAX_EVENT_NBYTES:
            raise LegFailed(leg, server.server_id, "cut")
