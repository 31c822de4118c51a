"""HTTP/1.1 as a client that may leave at any moment: no pool, no retry, every byte in hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import msgspec

Address = tuple[str, int]


class BrokenAnswer(Exception):
    """The connection ended before its answer did. `started` says whether anything had come."""

    def __init__(self, text: str, *, started: bool) -> None:
        super().__init__(text)
        self.started = started


class Connection:
    """One connection to the gateway. Leaving the block drops it without a word."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._headers: dict[str, str] = {}
        self._started = False
        self.status = 0

    async def __aenter__(self) -> Self:
        try:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        except OSError as error:
            raise BrokenAnswer(str(error), started=False) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Drop the connection now."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def post(self, path: str, body: dict[str, Any]) -> None:
        """Send a JSON body."""
        data = msgspec.json.encode(body)
        lines = f"POST {path} HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n"
        await self._send(f"{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def get(self, path: str) -> int:
        """Ask for a path, read the answer whole and return its status."""
        await self._send(f"GET {path} HTTP/1.1\r\nHost: chaos\r\n\r\n".encode())
        await self.read_head()
        async for _ in self.pieces():
            pass
        return self.status

    async def _send(self, data: bytes) -> None:
        assert self._writer is not None
        self._started = False
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise BrokenAnswer(str(error), started=False) from error

    async def read_head(self) -> None:
        """Read status and headers. Raises BrokenAnswer."""
        line = await self._line()
        self._started = True
        try:
            self.status = int(line.split(" ")[1])
        except (IndexError, ValueError):
            raise BrokenAnswer(f"not a status line: {line[:80]!r}", started=True) from None
        self._headers = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip()

    def header(self, name: str) -> str:
        """A header of the answer by its lower-case name, or ""."""
        return self._headers.get(name, "")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises BrokenAnswer when it ends too early."""
        if self.header("transfer-encoding") == "chunked":
            while size := int(await self._line() or "-1", 16):
                yield await self._exactly(size)
                await self._line()
            await self._line()
        elif length := int(self.header("content-length") or 0):
            yield await self._exactly(length)

    async def _line(self) -> str:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except (OSError, asyncio.IncompleteReadError) as error:
            raise BrokenAnswer(f"closed: {error}", started=self._started) from error
        return line[:-2].decode("latin-1")

    async def _exactly(self, nbytes: int) -> bytes:
        try:
            return await self._reader.readexactly(nbytes)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise BrokenAnswer(f"closed in its body: {error}", started=True) from error


async def get_status(connection: Connection | None, address: Address, path: str) -> int:
    """One GET on a connection that is kept, or on one of its own; 0 when it broke."""
    with contextlib.suppress(BrokenAnswer):
        if connection is not None:
            return await connection.get(path)
        async with Connection(address) as own:
            return await own.get(path)
    return 0
