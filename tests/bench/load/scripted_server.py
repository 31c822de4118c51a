"""A real HTTP server in the test process that says exactly the bytes it is told, piece by piece."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def text(value: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "text": value, "finish_reason": finish}], usage=None)


def delta(finish: str | None = None, **fields: str) -> bytes:
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


def usage(num_prompt: int, num_output: int) -> bytes:
    found = {"prompt_tokens": num_prompt, "completion_tokens": num_output}
    return event(choices=[], usage=found)


DONE = b"data: [DONE]\n\n"


class Connection:
    """What a script may do with its client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.headers: dict[str, str] = {}
        self.body: dict[str, Any] = {}

    async def say(self, data: bytes) -> None:
        """One chunk of the body, sent at once."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()

    async def answer(self, status: int, body: Any, reason: str = "X") -> None:
        data = msgspec.json.encode(body)
        await self.raw(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, reason.encode(), len(data), data)
        )


Script = Callable[[Connection], Awaitable[None]]


class Server:
    """Answers /v1/models itself and everything else by the script."""

    def __init__(self, script: Script, models: list[dict[str, Any]] | None = None) -> None:
        self.script = script
        self.models = [{"id": "m", "max_model_len": 512}] if models is None else models
        self.url = ""
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.num_left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                connection = Connection(reader, writer)
                first, *lines = head.decode().split("\r\n")
                for line in filter(None, lines):
                    name, _, value = line.partition(": ")
                    connection.headers[name.lower()] = value
                length = int(connection.headers.get("content-length", 0))
                if first.startswith("GET /v1/models"):
                    await connection.answer(200, {"data": self.models})
                    continue
                connection.body = msgspec.json.decode(await reader.readexactly(length))
                self.requests.append((connection.headers, connection.body))
                await self.script(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.num_left += 1
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(
    script: Script, models: list[dict[str, Any]] | None = None
) -> AsyncIterator[Server]:
    server = Server(script, models)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()


def words(num: int, gap_s: float = 0.0, num_prompt: int | None = None) -> Script:
    """A well-behaved stream of so many tokens."""

    async def script(connection: Connection) -> None:
        await connection.raw(HEAD)
        for index in range(num):
            if gap_s:
                await asyncio.sleep(gap_s)
            await connection.say(text(f"w{index} "))
        await connection.say(text("", "length"))
        prompt = connection.body["prompt"]
        await connection.say(usage(num_prompt or len(prompt), num) + DONE)
        await connection.end()

    return script
