"""Runs the backend requests of one HTTP request and merges what they produce."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from baton.core.delivery import Delivery, Failed, Finished, Started, Tokens
from baton.errors import RequestRejected
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.choice import Choice, Piece
from baton.runtime.gateway.errors import rejection_of
from baton.runtime.gateway.metrics import GatewayMetrics

SETTLE_S = 2.0
"""How long a stopped output waits for the backend's final accounting."""

QUEUE_PIECES = 64
"""Pieces that wait per HTTP request with several outputs before a pump pauses."""


def run_choices(
    backend: Backend, choices: Sequence[Choice], metrics: GatewayMetrics, arrival: float
) -> AsyncGenerator[Piece, None]:
    """Pieces of all choices as they come; raises RequestRejected when one of them fails."""
    if len(choices) == 1:
        return run_choice(backend, choices[0], metrics, arrival)
    return _merged(backend, choices, metrics, arrival)


async def _merged(
    backend: Backend, choices: Sequence[Choice], metrics: GatewayMetrics, arrival: float
) -> AsyncGenerator[Piece, None]:
    queue: asyncio.Queue[Piece | BaseException] = asyncio.Queue(QUEUE_PIECES)
    pumps = [
        asyncio.create_task(_pump(backend, choice, metrics, arrival, queue)) for choice in choices
    ]
    num_open = len(choices)
    try:
        while num_open:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            num_open -= bool(item.finish_reason)
            yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    backend: Backend,
    choice: Choice,
    metrics: GatewayMetrics,
    arrival: float,
    queue: "asyncio.Queue[Piece | BaseException]",
) -> None:
    try:
        async with aclosing(run_choice(backend, choice, metrics, arrival)) as pieces:
            async for piece in pieces:
                await queue.put(piece)
    except Exception as error:
        await queue.put(error)


async def run_choice(
    backend: Backend, choice: Choice, metrics: GatewayMetrics, arrival: float
) -> AsyncGenerator[Piece, None]:
    """Pieces of one choice, ending with the one that has a finish reason.

    Leaves nothing behind: whatever way this is left, the backend request has ended or is
    cancelled.
    """
    clock = _TokenClock(metrics, arrival)
    deliveries: AsyncIterator[Delivery] | None = None
    try:
        deliveries = backend.submit(choice.request)
        async for delivery in deliveries:
            if type(delivery) is Tokens:
                if not delivery.tokens:
                    continue
                clock.tick(len(delivery.tokens))
                piece = choice.push(delivery.tokens)
                if choice.stopped:
                    backend.cancel(choice.request.request_id, "stop")
                yield piece
                if choice.stopped:
                    yield await _settle(deliveries, choice, clock)
                    return
            elif type(delivery) is Started:
                metrics.modes[delivery.mode.value] += 1
                yield Piece(choice.index, started=delivery)
            else:
                yield _end(choice, delivery, clock)
                return
        raise RuntimeError("the backend ended a request without Finished or Failed")
    except RequestRejected:
        choice.ended = True
        raise
    finally:
        clock.close()
        if not choice.ended:
            backend.cancel(choice.request.request_id, "disconnect")
        if isinstance(deliveries, AsyncGenerator):
            await deliveries.aclose()


def _end(choice: Choice, delivery: Delivery, clock: "_TokenClock") -> Piece:
    choice.ended = True
    if isinstance(delivery, Failed):
        raise rejection_of(delivery)
    assert isinstance(delivery, Finished), f"unknown delivery {type(delivery).__name__}"
    if delivery.finish_reason == "cancelled" and not choice.stopped:
        raise RequestRejected(
            "the server gave up this request; send it again",
            status=503,
            code="cancelled",
            retry_after_s=1.0,
        )
    piece = choice.finish(delivery)
    clock.finish(piece.finish_reason, choice.num_tokens)
    return piece


async def _settle(
    deliveries: AsyncIterator[Delivery], choice: Choice, clock: "_TokenClock"
) -> Piece:
    """After a stop string: wait, not for long, for the usage; tokens still on the way are lost."""
    try:
        async with asyncio.timeout(SETTLE_S):
            async for delivery in deliveries:
                if isinstance(delivery, Finished):
                    return _end(choice, delivery, clock)
                if isinstance(delivery, Failed):
                    choice.ended = True
                    break
    except (TimeoutError, RequestRejected):
        pass
    clock.finish("stop", choice.num_tokens)
    return Piece(choice.index, finish_reason="stop")


class _TokenClock:
    """Times one output: waiting, first token, gaps, mean per token."""

    def __init__(self, metrics: GatewayMetrics, arrival: float) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._first = 0.0
        self._last = 0.0
        metrics.num_waiting += 1

    def tick(self, num_tokens: int) -> None:
        """New tokens were delivered."""
        now = time.perf_counter()
        metrics = self._metrics
        metrics.generation_tokens += num_tokens
        if self._first:
            metrics.inter_token_latency.observe(now - self._last)
        else:
            self._first = now
            metrics.time_to_first_token.observe(now - self._arrival)
            metrics.num_waiting -= 1
            metrics.num_running += 1
        self._last = now

    def finish(self, reason: str, num_tokens: int) -> None:
        """The output ended well."""
        self._metrics.finished[reason] += 1
        if num_tokens > 1:
            mean = (self._last - self._first) / (num_tokens - 1)
            self._metrics.time_per_output_token.observe(mean)

    def close(self) -> None:
        """The output is over, whatever way."""
        if self._first:
            self._metrics.num_running -= 1
        else:
            self._metrics.num_waiting -= 1
