"""One output: its route, both legs, what follows a failure, and the events of its answer."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from baton.core.ids import Mode
from baton.errors import BatonError
from baton.policy.fallback import Fallback, next_fallback
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.bodies import Body, Part, decode_body, prefill_body
from baton.runtime.vllm.call_trace import CallTrace, usage_of
from baton.runtime.vllm.connector import LegIds, Params
from baton.runtime.vllm.http_client import events_of, read_all
from baton.runtime.vllm.leg import LegFailed
from baton.runtime.vllm.router import Ask, Route
from baton.runtime.vllm.servers import Server, Timer

logger = logging.getLogger("baton.vllm")

ERROR_EVENT = b'data: {"error"'
OLD_ERROR_EVENT = b'data: {"object":"error"'
DONE_EVENT = b"data: [DONE]\n\n"
_BROKEN = frozenset({"connect", "cut", "server_down"})
USAGE = b'"usage":{'
"""Never within a string of JSON: its quotes would be escaped."""
WHOLE_TOKEN_S = 1.0
"""Per token of an answer that is not streamed: far above any step, and still an end."""


class Call:
    """Serves one part. `route`, `reused` and `timer` say how, once the first event is there."""

    def __init__(
        self,
        backend: VllmBackend,
        part: Part,
        ask: Ask,
        *,
        path: str,
        request_id: str,
        tenant_id: str,
        headers: Mapping[str, str],
        started_s: float,
        trace: CallTrace | None = None,
    ) -> None:
        self.part = part
        self.route: Route | None = None
        self.reused: int | None = None
        """Prompt tokens that the prefill server had; None where the answer's own count is true."""
        self.timer = Timer()
        self.trace = trace or CallTrace(request_id)
        self._usage = b""
        """The event or body that counts its tokens; kept only for the trace."""
        self._backend = backend
        self._ask = ask
        self._path = path
        self._ids = LegIds(request_id=request_id, tenant_id=tenant_id, attempt=1)
        self._headers = headers
        self._knobs = backend.config.router
        self._deadline_s = started_s + self._knobs.ttft_budget_ms / 1000
        self._avoid_prefill: set[str] = set()
        self._avoid_decode: set[str] = set()
        self._gone: set[str] = set()
        """Servers whose connection broke, whatever the last look at their health has said."""
        self._fallback = ""
        """Why the prompt is computed where it decodes; "" while a handoff may still be tried."""

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The answer: events of a stream, [DONE] included, or one body.

        Raises RequestRejected; after the first item that means that the answer is incomplete.
        """
        while True:
            route = self._choose()
            self.trace.routed(self._ids.attempt, route, self._knobs.policy)
            sent = False
            try:
                async with aclosing(self.attempt(route)) as items:
                    async for item in items:
                        if not sent:
                            sent = True
                            self._count(route)
                        yield item
                self.trace.finished(self._counted())
                return
            except LegFailed as failed:
                self._backend.metrics.legs[failed.leg, failed.reason] += 1
                if sent:
                    self._note_failure(failed, Fallback.FAIL)
                    raise failed.rejection() from failed
                self._after(failed, route)

    def _choose(self) -> Route:
        router = self._backend.router
        if self._fallback:
            route = router.colocated(self._fallback, self._avoid_decode, self._gone)
            route = msgspec.structs.replace(route, mode=Mode.RECOMPUTED)
        else:
            route = router.choose(self._ask, self._avoid_prefill, self._avoid_decode)
        self.timer.lap("route")
        return route

    def _after(self, failed: LegFailed, route: Route) -> None:
        """Prepare the next attempt, or raise what the client gets."""
        servers = self._backend.servers
        if failed.reason == "connect":
            servers[failed.server].fall("it refuses connections")
        if failed.reason in _BROKEN:
            self._gone.add(failed.server)
        if failed.is_clients:
            self._note_failure(failed, Fallback.FAIL)
            raise failed.rejection() from failed
        avoid = self._avoid_prefill if failed.leg == "prefill" else self._avoid_decode
        avoid.add(failed.server)
        role = servers[failed.server].role
        other = any(server.server_id not in avoid for server in servers.up(role))
        fallback = next_fallback(
            attempt=self._ids.attempt,
            max_attempts=self._knobs.max_attempts,
            budget_left=time.monotonic() < self._deadline_s,
            other_source=other and route.prefill is not None,
        )
        logger.warning(
            "%s attempt %d: %s; %s", self._ids.request_id, self._ids.attempt, failed, fallback
        )
        self._note_failure(failed, fallback)
        if fallback is Fallback.FAIL:
            raise failed.rejection() from failed
        if fallback is Fallback.RECOMPUTE:
            self._fallback = f"{failed.leg}_{failed.reason}"
        self._ids = msgspec.structs.replace(self._ids, attempt=self._ids.attempt + 1)

    def _note_failure(self, failed: LegFailed, fallback: Fallback) -> None:
        reason = f"{failed.leg}_{failed.reason}"
        self._backend.metrics.fallbacks[str(fallback)] += 1
        self.trace.attempt_failed(self._ids.attempt, reason, str(fallback))

    def _counted(self) -> dict[str, Any]:
        """The answer's usage; of a handed over prompt the cached part is the prefill server's."""
        usage = usage_of(self._usage) if self._usage else {}
        if self.reused is not None:
            usage = {**usage, "prompt_tokens_details": {"cached_tokens": self.reused}}
        return usage

    def _count(self, route: Route) -> None:
        self.route = route
        self._backend.metrics.outputs[route.mode, route.reason] += 1

    async def attempt(self, route: Route) -> AsyncGenerator[bytes, None]:
        """Both legs of one attempt; whoever leaves early gives the handle back."""
        if route.prefill is None:
            async with aclosing(self._decode(route, None)) as items:
                async for item in items:
                    yield item
            return
        connector = self._backend.connector
        try:
            asked = connector.prefill_params(self._ids, route.prefill, route.decode)
        except BatonError as error:
            raise LegFailed("prefill", route.prefill.server_id, "no_ticket") from error
        legs = self._one_by_one(route, asked)
        if connector.is_together:
            legs = self._together(route, asked)
        async with aclosing(legs) as items:
            async for item in items:
                yield item

    async def _one_by_one(self, route: Route, asked: Params) -> AsyncGenerator[bytes, None]:
        """Decode reads what the prefill leg left at its server."""
        assert route.prefill is not None
        params = await self._prefill(route.prefill, asked)
        read = False
        try:
            async with aclosing(self._decode(route, params)) as items:
                async for item in items:
                    read = True
                    yield item
        finally:
            if not read:
                self._backend.release(route.decode, params)

    async def _together(self, route: Route, asked: Params) -> AsyncGenerator[bytes, None]:
        """Both legs at once: the prefill server writes into blocks that decode has by then.

        The first leg that fails ends the other one.
        """
        assert route.prefill is not None
        params = self._backend.connector.early_params(asked)
        async with aclosing(self._decode(route, params)) as items:
            first = asyncio.ensure_future(anext(items))
            prefilling = asyncio.create_task(self._prefill(route.prefill, asked))
            read = False
            try:
                await asyncio.wait({first, prefilling}, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    prefilling.result()  # raises where the prompt will never come
                item = await first
                read = True
                yield item
                async for item in items:
                    yield item
            finally:
                await _end(first, prefilling)
                if not read:
                    self._backend.release(route.decode, params)

    async def _prefill(self, prefill: Server, asked: Params) -> Params:
        connector = self._backend.connector
        body = prefill_body(self.part.body, asked)
        num_tokens = self._ask.num_tokens
        alone = prefill.pending_tokens == 0
        prefill.pending_tokens += num_tokens
        try:
            async with self._post("prefill", prefill, body) as answer:
                data = await read_all(answer, "prefill", prefill, self._wait_s())
        finally:
            prefill.pending_tokens -= num_tokens
        seconds = self.timer.lap("prefill")
        tree = _object(data, "prefill", prefill.server_id)
        answered = tree.get("kv_transfer_params")
        params = connector.decode_params(asked, answered)
        if params is None:
            said = answered.get("baton_refusal") if isinstance(answered, dict) else ""
            raise LegFailed(
                "prefill", prefill.server_id, f"refused_{said}" if said else "no_handle"
            )
        usage = tree.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        self.reused = details.get("cached_tokens")
        computed = usage.get("prompt_tokens", num_tokens) - (self.reused or 0)
        if alone and computed > 0:
            prefill.prefill_us.observe(seconds * 1e6, computed)
        self._backend.metrics.legs["prefill", "ok"] += 1
        self.trace.prefill_answered(self._ids.attempt, prefill.server_id, usage)
        return params

    async def _decode(self, route: Route, params: Params | None) -> AsyncGenerator[bytes, None]:
        body = decode_body(self.part.body, params)
        decode = route.decode
        if params is None:
            self.reused = None
        decode.active += 1
        try:
            async with self._post("decode", decode, body) as answer:
                if not body.get("stream"):
                    data = await read_all(answer, "decode", decode, self._whole_s())
                    self._note_answer(decode, params, True)
                    self._usage = data if self.trace.is_on else b""
                    yield data
                else:
                    async with aclosing(self._events(answer, decode, params)) as events:
                        async for event in events:
                            yield event
            self.timer.lap("decode")
            self._backend.metrics.legs["decode", "ok"] += 1
            self._backend.metrics.observe(self.timer.phases_s)
        finally:
            decode.active -= 1

    def _note_answer(self, decode: Server, params: Params | None, is_whole: bool) -> None:
        """The first event is here, so the handoff is over; how it went is asked for aside."""
        backend, attempt = self._backend, self._ids.attempt
        self.timer.lap("handoff")
        self.trace.decode_answered(attempt, decode.server_id, is_whole)
        if params is not None and self.trace.is_on:
            backend.handoffs.want(backend.connector, decode, params, self._ids.request_id, attempt)

    async def _events(
        self, answer: Any, decode: Server, params: Params | None
    ) -> AsyncGenerator[bytes, None]:
        first_s = self._wait_s()
        next_s = self._knobs.decode_stall_ms / 1000
        done = opened = False
        last_s = 0.0
        events = events_of(answer, "decode", decode, first_s, next_s)
        async with aclosing(events):
            async for event in events:
                if event.startswith((ERROR_EVENT, OLD_ERROR_EVENT)):
                    raise LegFailed("decode", decode.server_id, "error_event", 0, event[6:])
                now_s = time.perf_counter()
                if not opened:
                    opened = True
                    self._note_answer(decode, params, False)
                elif decode.active == 1 and event != DONE_EVENT:
                    decode.step_us.observe((now_s - last_s) * 1e6, 1.0)
                last_s = now_s
                if USAGE in event and self.trace.is_on:
                    self._usage = event
                done = done or event == DONE_EVENT
                yield event
        if not done:
            raise LegFailed("decode", decode.server_id, "cut")

    @asynccontextmanager
    async def _post(self, leg: str, server: Server, body: Body) -> AsyncIterator[Any]:
        attempt, name = self._ids.attempt, server.server_id
        headers = {
            **self._headers,
            **self.trace.leg_headers(attempt, leg, name),
            "content-type": "application/json",
            "x-request-id": self._ids.leg_id,
        }
        asked = body.get("model")
        model = asked if asked in server.models else server.model
        data = msgspec.json.encode({**body, "model": model})
        # A server that streams nothing sends its head with its body.
        wait_s = self._wait_s() if body.get("stream") or leg == "prefill" else self._whole_s()
        client = self._backend.client
        self.trace.leg_sent(attempt, leg, name)
        async with client.post(leg, server, self._path, data, headers, wait_s) as answer:
            yield answer

    def _wait_s(self) -> float:
        """What this attempt may still take to its first event."""
        left_s = self._deadline_s - time.monotonic()
        return max(0.001, min(left_s, self._knobs.attempt_timeout_ms / 1000))

    def _whole_s(self) -> float:
        """What a whole answer may take: nobody sees its single tokens, so their time is a bound."""
        return self._wait_s() + self._ask.num_output_tokens * WHOLE_TOKEN_S


async def _end(*legs: "asyncio.Future[Any]") -> None:
    """Cancel what still runs and wait for its end, whatever it is."""
    for leg in legs:
        leg.cancel()
    await asyncio.gather(*legs, return_exceptions=True)


def _object(data: bytes, leg: str, server: str) -> dict[str, Any]:
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LegFailed(leg, server, "not_json") from error
    if not isinstance(tree, dict):
        raise LegFailed(leg, server, "not_json")
    return tree
