"""From the outputs of calls to one HTTP answer: a stream of events, or a body."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from baton.runtime.gateway.choice import UsageTotal
from baton.runtime.gateway.exchange import Exchange, Headers
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.runtime.gateway.sse import DONE
from baton.runtime.vllm.call import DONE_EVENT, USAGE, Call
from baton.runtime.vllm.usage import Usage, cached_tokens, corrected, total

_QUEUED = 64

Item = tuple[Call, bytes]


class Answer:
    """Writes what some calls bring. With one call events pass through as they came."""

    def __init__(
        self, exchange: Exchange, calls: Sequence[Call], metrics: GatewayMetrics, public_id: str
    ) -> None:
        self._exchange = exchange
        self._calls = calls
        self._metrics = metrics
        self._id = public_id
        self._usages: dict[int, tuple[int, Usage]] = {}
        self._last_s: dict[int, float] = {}

    async def stream(self, include_usage: bool) -> None:
        """Server-sent events. Raises RequestRejected, possibly in the middle of the stream."""
        single = len(self._calls) == 1
        async with aclosing(self._items()) as items:
            async for call, event in items:
                if event == DONE_EVENT:
                    continue
                self._clock(call)
                if USAGE in event or not single:
                    event = self._edited(call, event, include_usage, single)
                if not self._exchange.streaming:
                    await self._exchange.start_stream(self._headers())
                if event:
                    await self._exchange.write(event)
                    call.trace.first_written()
        self._finish()
        last = b"" if single or not include_usage else self._usage_event()
        await self._exchange.end(last + DONE)

    async def collect(self) -> None:
        """One body."""
        trees: dict[int, dict[str, Any]] = {}
        async with aclosing(self._items()) as items:
            async for call, body in items:
                self._clock(call)
                tree = msgspec.json.decode(body)
                usage = corrected(tree.get("usage") or {}, call.reused)
                self._usages[call.part.index] = (call.part.prompt_index, usage)
                trees[call.part.index] = tree
        tree = trees[min(trees)]
        tree.pop("kv_transfer_params", None)
        if len(trees) == 1:
            tree["usage"] = next(iter(self._usages.values()))[1]
        else:
            tree["id"] = self._id
            tree["usage"] = total(self._usages)
            tree["choices"] = [
                {**choice, "index": index}
                for index in sorted(trees)
                for choice in trees[index]["choices"]
            ]
        self._finish()
        await self._exchange.respond(200, msgspec.json.encode(tree), self._headers())

    async def _items(self) -> AsyncGenerator[Item, None]:
        if len(self._calls) == 1:
            call = self._calls[0]
            async with aclosing(call.run()) as items:
                async for item in items:
                    yield call, item
            return
        async with aclosing(_merged(self._calls)) as merged:
            async for pair in merged:
                yield pair

    def _edited(self, call: Call, event: bytes, include_usage: bool, single: bool) -> bytes:
        """An event with the answer's own id, index and usage; b"" if the client did not ask."""
        tree = msgspec.json.decode(event.removeprefix(b"data: "))
        usage = tree.get("usage")
        if usage:
            usage = corrected(usage, call.reused)
            self._usages[call.part.index] = (call.part.prompt_index, usage)
            tree["usage"] = usage
        choices = tree.get("choices") or []
        if not choices and usage and (not include_usage or not single):
            return b""
        if not single:
            tree["id"] = self._id
            for choice in choices:
                choice["index"] = call.part.index
        return b"data: " + msgspec.json.encode(tree) + b"\n\n"

    def _usage_event(self) -> bytes:
        call = self._calls[0]
        is_chat = "messages" in call.part.body
        tree: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(time.time()),
            "model": call.part.body.get("model"),
            "choices": [],
            "usage": total(self._usages),
        }
        return b"data: " + msgspec.json.encode(tree) + b"\n\n"

    def _clock(self, call: Call) -> None:
        now_s = time.perf_counter()
        index = call.part.index
        last_s = self._last_s.get(index)
        if last_s is None:
            self._metrics.time_to_first_token.observe(now_s - self._exchange.arrival)
        else:
            self._metrics.inter_token_latency.observe(now_s - last_s)
        self._last_s[index] = now_s

    def _finish(self) -> None:
        usage = total(self._usages)
        counted = UsageTotal(
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            cached_tokens=cached_tokens(usage),
        )
        self._metrics.generation_tokens += counted.completion_tokens
        self._metrics.count_request(counted, time.perf_counter() - self._exchange.arrival)

    def _headers(self) -> Headers:
        """How the outputs ran that have begun; several may differ, then all are named."""
        routes = [call.route for call in self._calls if call.route is not None]
        fields = (
            ("x-baton-mode", [str(route.mode) for route in routes]),
            ("x-baton-reason", [route.reason for route in routes]),
            ("x-baton-prefill-worker", [(r.prefill or r.decode).server_id for r in routes]),
            ("x-baton-decode-worker", [route.decode.server_id for route in routes]),
        )
        return [
            (name.encode(), ",".join(dict.fromkeys(values)).encode("latin-1", "replace"))
            for name, values in fields
        ]


async def _merged(calls: Sequence[Call]) -> AsyncGenerator[Item, None]:
    """Items of several calls as they come; the first failure ends them all."""
    queue: asyncio.Queue[Item | None] = asyncio.Queue(_QUEUED)

    async def pump(call: Call) -> None:
        async with aclosing(call.run()) as items:
            async for item in items:
                await queue.put((call, item))

    async def pump_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(pump(call))
        finally:
            await queue.put(None)

    pumping = asyncio.create_task(pump_all())
    try:
        while (pair := await queue.get()) is not None:
            yield pair
        try:
            await pumping
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
