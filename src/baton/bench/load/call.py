"""One request, from its first byte to its one end."""

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum

import aiohttp
import msgspec

from baton.bench.load.chunk import Usage, decode_chunk, describe_body
from baton.bench.load.sse import DONE, EventReader

US_PER_S = 1_000_000
MAX_REFUSAL_NBYTES = 65_536


class Reason(StrEnum):
    """Why a request failed: what failures are counted by."""

    REFUSED = "connection refused"
    RESET = "connection lost"
    TIMEOUT = "timeout"
    TRUNCATED = "stream truncated"
    NO_CONTENT = "no content"
    BAD_CHUNK = "unreadable chunk"
    ERROR_EVENT = "error event"


class CallFailed(Exception):
    """The request has no usable answer; `reason` is short, the text adds the details."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Received:
    """What has arrived of one answer so far; it stays readable when the call fails."""

    def __init__(self) -> None:
        self.token_times_us: list[int] = []
        self.usage: Usage | None = None
        self.mode = ""
        self.is_done = False
        self.is_finished = False

    @property
    def num_output_tokens(self) -> int:
        """By the server's usage; the chunks are counted only where it says nothing."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return len(self.token_times_us)

    @property
    def num_prompt_tokens(self) -> int | None:
        """By the server's usage; None where it says nothing."""
        return self.usage.prompt_tokens if self.usage and self.usage.prompt_tokens else None


Clock = Callable[[], int]
"""Microseconds on a monotonic clock."""


def now_us() -> int:
    """The clock of a real run."""
    return time.perf_counter_ns() // 1000


async def call(
    session: aiohttp.ClientSession,
    url: str,
    headers: dict[str, str],
    body: bytes,
    received: Received,
    clock: Clock = now_us,
) -> None:
    """Send a request and read its stream into `received`. Raises CallFailed."""
    try:
        async with session.post(url, data=body, headers=headers) as response:
            received.mode = response.headers.get("x-baton-mode", "")
            if response.status != 200:
                refusal = await response.content.read(MAX_REFUSAL_NBYTES)
                raise CallFailed(f"HTTP {response.status}", describe_body(refusal))
            await _read_stream(response, received, clock)
    except aiohttp.ClientConnectorError as error:
        raise CallFailed(Reason.REFUSED, str(error.os_error)) from error
    except aiohttp.ClientPayloadError as error:
        raise CallFailed(Reason.TRUNCATED, _short(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise CallFailed(Reason.RESET, _short(error)) from error
    if received.is_finished or received.is_done:
        if not received.token_times_us:
            raise CallFailed(Reason.NO_CONTENT, "the stream ended without a content token")
        return
    raise CallFailed(
        Reason.TRUNCATED, f"ended after {len(received.token_times_us)} chunks without [DONE]"
    )


async def _read_stream(response: aiohttp.ClientResponse, received: Received, clock: Clock) -> None:
    reader = EventReader()
    content = response.content
    times = received.token_times_us
    while piece := await content.readany():
        now = clock()
        for event in reader.feed(piece):
            if event == DONE:
                received.is_done = True
                continue
            try:
                chunk = decode_chunk(event)
            except msgspec.DecodeError as error:
                raise CallFailed(Reason.BAD_CHUNK, f"{error}: {event[:80]!r}") from error
            if failure := chunk.failure:
                raise CallFailed(Reason.ERROR_EVENT, failure)
            if chunk.has_content:
                times.append(now)
            if chunk.usage is not None:
                received.usage = chunk.usage
            if not received.is_finished and chunk.is_last:
                received.is_finished = True


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]


def make_session(*, timeout_s: float | None = None) -> aiohttp.ClientSession:
    """A session without a bound of its own on connections.

    Idle connections are dropped sooner than servers drop theirs (uvicorn after 5 s): one that the
    server closes while a request is on its way would look like a failure of the server.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
        trust_env=False,
    )


async def bounded(work: "asyncio.Future[None] | asyncio.Task[None]", bound_s: float) -> bool:
    """Wait for a call so long at most; False, and the call is cancelled, when it is not done."""
    done, _ = await asyncio.wait({work}, timeout=bound_s)
    if done:
        return True
    work.cancel()
    await asyncio.wait({work})
    return False
