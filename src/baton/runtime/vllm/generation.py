"""One generation request in front of vLLM servers: body in, both legs, answer out."""

import asyncio
import logging
import time
from typing import Any

from baton.config import GatewayConfig
from baton.errors import RequestRejected
from baton.runtime.gateway.exchange import Exchange
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.runtime.gateway.parse import parse_object
from baton.runtime.gateway.tenants import Tenants
from baton.runtime.gateway.unsupported import steering_in
from baton.runtime.gateway.watch import ClientWatch
from baton.runtime.vllm.answer import Answer
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.bodies import (
    STEERING_FIELDS,
    Body,
    Part,
    parts_of,
    prompt_length,
    without_steering,
)
from baton.runtime.vllm.call import Call
from baton.runtime.vllm.call_trace import CallTrace
from baton.runtime.vllm.router import Ask
from baton.runtime.vllm.tokens import token_ids_of

logger = logging.getLogger("baton.vllm")

_MAX_OUTPUT_TOKENS = 1 << 20


class VllmGeneration:
    """Serves one request, from its body to the end of its response."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        chat: bool,
        backend: VllmBackend,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        tenants: Tenants,
    ) -> None:
        self._exchange = exchange
        self._chat = chat
        self._backend = backend
        self._config = config
        self._metrics = metrics
        self._tenants = tenants
        self._started_s = time.monotonic()
        self._traces: dict[str, CallTrace] = {}
        """Of each output, by the id of its request."""

    async def serve(self) -> None:
        """Answer the request. Raises RequestRejected, possibly in the middle of a stream."""
        data = await self._exchange.read_body(self._config)
        self._metrics.num_running += 1
        try:
            async with ClientWatch(self._exchange, self._config.stream_stall_s) as watch:
                await self._traced(data, watch)
        finally:
            self._metrics.num_running -= 1
        if watch.reason:
            self._metrics.disconnects[watch.reason] += 1
            logger.info("%s given up (%s)", self._exchange.request_id, watch.reason)

    async def _traced(self, data: bytes, watch: ClientWatch) -> None:
        why = "another_output_failed"
        try:
            await self._answer(data)
        except RequestRejected as error:
            for trace in self._traces.values():
                trace.refused(error)
            raise
        except asyncio.CancelledError:
            why = watch.reason or "shutdown"
            raise
        finally:
            for trace in self._traces.values():
                trace.left(why)
            self._backend.num_open -= len(self._traces)

    async def _answer(self, data: bytes) -> None:
        body, include_usage = self._checked(data)
        parts = parts_of(
            body, self._chat, max_n=self._config.max_n, max_prompts=self._config.max_prompts
        )
        num_tokens = sum(prompt_length(part.body) for part in parts)
        self._receive(parts)
        self._backend.router.check_admission(num_tokens)
        calls = await self._calls(parts)
        exchange = self._exchange
        public_id = ("chatcmpl-" if self._chat else "cmpl-") + exchange.request_id
        answer = Answer(exchange, calls, self._metrics, public_id)
        try:
            if body.get("stream"):
                await answer.stream(include_usage)
            else:
                await answer.collect()
        finally:
            for call in calls:
                if call.route is not None:
                    self._metrics.modes[call.route.mode] += 1

    def _receive(self, parts: list[Part]) -> None:
        """From here on each output is traced, whatever becomes of it."""
        exchange = self._exchange
        waited_us = int((time.perf_counter() - exchange.arrival) * 1e6)
        state = exchange.header(b"tracestate").decode("latin-1")
        operation = "chat" if self._chat else "text_completion"
        for part in parts:
            name = exchange.request_id + ("" if len(parts) == 1 else f"-{part.index}")
            trace = CallTrace(name, self._backend.tracer, exchange.trace_context, state)
            trace.received(waited_us, operation, exchange.client_request_id)
            self._traces[name] = trace
        self._backend.num_open += len(parts)
        if self._backend.tracer.is_on:
            exchange.output_ids = tuple(self._traces)

    def _checked(self, data: bytes) -> tuple[Body, bool]:
        """The body that the servers may see, and whether the client wants usage in its stream."""
        raw = parse_object(data)
        headers = self._exchange.scope["headers"]
        dropped = {*steering_in(raw, headers), *(STEERING_FIELDS & raw.keys())}
        for name in dropped:
            self._metrics.steering_dropped[name] += 1
        if claimed := self._tenants.claimed_in(headers):
            self._metrics.steering_dropped[claimed] += 1
        body = without_steering(raw)
        if reason := self._backend.servers.unready():
            self._backend.router.colocated(reason)  # raises unless some server can take it all
        asked = body.get("model") or self._backend.config.model.name
        if not isinstance(asked, str) or not self._backend.serves(asked):
            raise RequestRejected(
                f"model is {str(asked)[:100]!r}, which is not served here; use "
                f"{self._backend.model or self._backend.config.model.name!r}",
                status=404,
                param="model",
                code="model_not_found",
            )
        body["model"] = asked
        self._salt(body)
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        if body.get("stream"):
            # Counted here in any case; the client sees it only where it asked.
            body["stream_options"] = {**options, "include_usage": True}
        return body, bool(options.get("include_usage"))

    def _salt(self, body: Body) -> None:
        """Tenants share no prefix: the servers salt their block hashes with the tenant."""
        tenant = self._tenants.of(self._exchange.scope["headers"])
        if tenant:
            body["cache_salt"] = tenant + str(body.get("cache_salt") or "")

    async def _calls(self, parts: list[Part]) -> list[Call]:
        exchange = self._exchange
        single = len(parts) == 1
        path = "/v1/chat/completions" if self._chat else "/v1/completions"
        headers = {}
        if authorization := exchange.header(b"authorization"):
            headers["authorization"] = authorization.decode("latin-1")
        tenant_id = self._tenants.of(exchange.scope["headers"])
        tokens: dict[int, tuple[int, ...]] = {}
        calls = []
        for part in parts:
            if self._backend.router.wants_tokens and part.prompt_index not in tokens:
                ids = await token_ids_of(self._backend, part.body)
                tokens[part.prompt_index] = ids
            request_id = exchange.request_id + ("" if single else f"-{part.index}")
            ask = _ask(part, tokens.get(part.prompt_index, ()), self._backend.max_model_len)
            trace = self._traces[request_id]
            trace.arrived(ask.num_tokens)
            calls.append(
                Call(
                    self._backend,
                    part,
                    ask,
                    path=path,
                    request_id=request_id,
                    tenant_id=tenant_id,
                    headers=headers,
                    started_s=self._started_s,
                    trace=trace,
                )
            )
        return calls


def _ask(part: Part, token_ids: tuple[int, ...], max_model_len: int) -> Ask:
    return Ask(
        num_tokens=len(token_ids) or prompt_length(part.body),
        num_output_tokens=_output_tokens(part.body, max_model_len),
        token_ids=token_ids,
        cache_salt=str(part.body.get("cache_salt") or ""),
        colocated=part.reason,
    )


def _output_tokens(body: dict[str, Any], max_model_len: int) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, min(value, _MAX_OUTPUT_TOKENS))
    return max_model_len or 4096
