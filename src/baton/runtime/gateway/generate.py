"""The two generation endpoints: body in, full response or event stream out."""

import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from baton.config import GatewayConfig
from baton.core.delivery import Started
from baton.core.effects import Trace
from baton.core.layout import ModelInfo
from baton.core.request import Request, Token
from baton.errors import RequestRejected
from baton.runtime.clock import now_us
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.choice import Choice, Piece, total_usage
from baton.runtime.gateway.exchange import Exchange, Headers
from baton.runtime.gateway.logprobs import chat_logprobs, completion_logprobs
from baton.runtime.gateway.metrics import GatewayMetrics
from baton.runtime.gateway.outputs import run_choices
from baton.runtime.gateway.params import SEED_RANGE, Parameters, check_parameters
from baton.runtime.gateway.parse import convert, parse_object
from baton.runtime.gateway.prompts import TokenIds, chat_prompts, completion_prompts
from baton.runtime.gateway.schema import ChatBody, CompletionBody
from baton.runtime.gateway.sse import DONE, ChunkEncoder
from baton.runtime.gateway.tenants import Tenants
from baton.runtime.gateway.tokenizer import Tokenizer
from baton.runtime.gateway.unsupported import check_supported, steering_in
from baton.runtime.gateway.watch import ClientWatch

logger = logging.getLogger("baton.gateway")

RETRY_NOT_READY_S = 2.0


class Generation:
    """Serves one generation request, from its body to the end of its response."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        chat: bool,
        backend: Backend,
        tokenizer: Tokenizer,
        config: GatewayConfig,
        model_name: str,
        metrics: GatewayMetrics,
        tenants: Tenants,
    ) -> None:
        self._exchange = exchange
        self._chat = chat
        self._backend = backend
        self._tokenizer = tokenizer
        self._config = config
        self._model_name = model_name
        self._metrics = metrics
        self._tenants = tenants
        self._public_id = ("chatcmpl-" if chat else "cmpl-") + exchange.request_id
        self._created = int(time.time())
        self._choices: list[Choice] = []

    async def serve(self) -> None:
        """Answer the request. Raises RequestRejected, possibly in the middle of a stream."""
        data = await self._exchange.read_body(self._config)
        async with ClientWatch(self._exchange, self._config.stream_stall_s) as watch:
            params = await self._prepare(data)
            del data
            pieces = run_choices(
                self._backend, self._choices, self._metrics, self._exchange.arrival
            )
            async with aclosing(pieces):
                if params.stream:
                    await self._stream(pieces, params)
                else:
                    await self._collect(pieces, params)
        if watch.reason:
            self._metrics.disconnects[watch.reason] += 1
            logger.info(
                "%s given up (%s) client_request_id=%s",
                self._exchange.request_id,
                watch.reason,
                self._exchange.client_request_id or "-",
            )

    async def _prepare(self, data: bytes) -> Parameters:
        """Check the body and make its choices. Raises RequestRejected."""
        raw = parse_object(data)
        headers = self._exchange.scope["headers"]
        for name in steering_in(raw, headers):
            self._metrics.steering_dropped[name] += 1
        if claimed := self._tenants.claimed_in(headers):
            self._metrics.steering_dropped[claimed] += 1
        kind: type[ChatBody] | type[CompletionBody] = ChatBody if self._chat else CompletionBody
        body = convert(raw, kind)
        if body.model and body.model != self._model_name:
            raise RequestRejected(
                f"model is {body.model[:100]!r}, which is not served here; use "
                f"{self._model_name!r}",
                status=404,
                param="model",
                code="model_not_found",
            )
        check_supported(raw)
        info = self._info()
        params = check_parameters(body, self._config, info)
        if isinstance(body, ChatBody):
            prompts = await chat_prompts(body, self._tokenizer, info)
        else:
            limit = self._config.max_prompts
            prompts = await completion_prompts(body, self._tokenizer, info, limit)
        self._choices = self._make_choices(prompts, params, info)
        self._note_received()
        return params

    def _note_received(self) -> None:
        """Where the time of each output begins: when its HTTP request was read."""
        self._exchange.output_ids = tuple(one.request.request_id for one in self._choices)
        for choice in self._choices:
            waited_us = max(0, now_us() - choice.request.arrival_us)
            data: dict[str, int | float | str] = {"waited_us": waited_us}
            data["operation"] = "chat" if self._chat else "text_completion"
            context = self._exchange.trace_context
            if context.trace_id:
                data["trace_id"] = context.trace_id
                data["parent_span_id"] = context.parent_span_id
            slo = choice.request.slo
            data |= {"ttft_slo_us": slo.ttft_us} if slo.ttft_us else {}
            data |= {"tpot_slo_us": slo.tpot_us} if slo.tpot_us else {}
            if self._exchange.client_request_id:
                data["client_request_id"] = self._exchange.client_request_id
            self._observe("received", choice, data)

    def _observe(
        self, name: str, choice: Choice, data: dict[str, int | float | str] | None = None
    ) -> None:
        trace = Trace(name=name, request_id=choice.request.request_id, data=data or {})
        self._backend.observe(trace)

    def _info(self) -> ModelInfo:
        reason = self._backend.ready()
        info = self._backend.info
        if reason or info is None:
            raise RequestRejected(
                f"not ready: {reason or 'no worker has loaded the model yet'}; try again later",
                status=503,
                code="not_ready",
                retry_after_s=RETRY_NOT_READY_S,
            )
        return info

    def _make_choices(
        self, prompts: list[TokenIds], params: Parameters, info: ModelInfo
    ) -> list[Choice]:
        exchange = self._exchange
        tenant_id = self._tenants.of(exchange.scope["headers"])
        single = len(prompts) * params.n == 1
        arrival_us = now_us() - int((time.perf_counter() - exchange.arrival) * 1e6)
        choices = []
        for prompt_index, token_ids in enumerate(prompts):
            for copy in range(params.n):
                index = prompt_index * params.n + copy
                if params.seed is None:
                    seed = random.getrandbits(63)
                else:
                    seed = (params.seed + copy) % SEED_RANGE
                request = Request(
                    request_id=exchange.request_id if single else f"{exchange.request_id}-{index}",
                    prompt_token_ids=token_ids,
                    sampling=params.sampling(len(token_ids), seed, info.max_model_len),
                    tenant_id=tenant_id,
                    client_request_id=exchange.client_request_id,
                    cache_salt=params.cache_salt,
                    slo=params.slo,
                    arrival_us=arrival_us,
                )
                choices.append(
                    Choice(
                        index,
                        prompt_index,
                        request,
                        self._tokenizer,
                        stops=params.stops,
                        eos_token_ids=info.eos_token_ids,
                        skip_special_tokens=params.skip_special_tokens,
                    )
                )
        return choices

    async def _stream(self, pieces: AsyncGenerator[Piece, None], params: Parameters) -> None:
        exchange = self._exchange
        encoder = ChunkEncoder(
            chat=self._chat,
            public_id=self._public_id,
            created=self._created,
            model=self._model_name,
            include_usage=params.include_usage,
        )
        # Until something arrives, a failure is still a proper HTTP status.
        first = await anext(pieces)
        await exchange.start_stream(_mode_headers([first.started] if first.started else []))
        opened: set[int] = set()
        if first.started is None:
            await exchange.write(self._chunk(first, params, encoder, opened))
            self._observe("first_written", self._choices[first.index])
        await self._write_chunks(pieces, params, encoder, opened)

    async def _write_chunks(
        self,
        pieces: AsyncGenerator[Piece, None],
        params: Parameters,
        encoder: ChunkEncoder,
        opened: set[int],
    ) -> None:
        write = self._exchange.write
        plain = params.num_logprobs < 0 and not params.continuous_usage
        async for piece in pieces:
            if plain and piece.text and not piece.finish_reason and piece.index in opened:
                await write(encoder.text(piece.index, piece.text))
            elif piece.started is None:
                is_first = piece.index not in opened
                data = self._chunk(piece, params, encoder, opened)
                if data:
                    await write(data)
                if is_first:
                    self._observe("first_written", self._choices[piece.index])
        usage = total_usage(self._choices)
        self._metrics.count_request(usage, time.perf_counter() - self._exchange.arrival)
        last = encoder.usage(usage.to_json()) if params.include_usage else b""
        await self._exchange.end(last + DONE)

    def _chunk(
        self, piece: Piece, params: Parameters, encoder: ChunkEncoder, opened: set[int]
    ) -> bytes:
        """The events of one piece; the first one of a choice is preceded by its role."""
        role = b""
        if piece.index not in opened:
            # The role goes out with the first token, never before it: benchmark clients take the
            # first chunk for the first token.
            opened.add(piece.index)
            role = encoder.role(piece.index)
        want_logprobs = params.num_logprobs >= 0 and bool(piece.tokens)
        if not (piece.text or piece.finish_reason or want_logprobs or params.continuous_usage):
            return role
        logprobs = b"null"
        if want_logprobs:
            form = self._logprobs(piece.tokens, params.num_logprobs, piece.text_offset)
            logprobs = msgspec.json.encode(form)
        usage = total_usage(self._choices).to_json() if params.continuous_usage else b""
        return role + encoder.chunk(piece, logprobs, usage)

    async def _collect(self, pieces: AsyncGenerator[Piece, None], params: Parameters) -> None:
        texts: list[list[str]] = [[] for _ in self._choices]
        tokens: list[list[Token]] = [[] for _ in self._choices]
        reasons = [""] * len(self._choices)
        started: list[Started] = []
        async for piece in pieces:
            if piece.started is not None:
                started.append(piece.started)
            texts[piece.index].append(piece.text)
            if params.num_logprobs >= 0:
                tokens[piece.index].extend(piece.tokens)
            reasons[piece.index] = piece.finish_reason or reasons[piece.index]
        outputs = []
        for index, parts in enumerate(texts):
            text = "".join(parts)
            output: dict[str, Any] = {"index": index}
            if self._chat:
                output["message"] = {"role": "assistant", "content": text, "refusal": None}
            else:
                output["text"] = text
            output["logprobs"] = None
            if params.num_logprobs >= 0:
                output["logprobs"] = self._logprobs(tuple(tokens[index]), params.num_logprobs, 0)
            output["finish_reason"] = reasons[index]
            outputs.append(output)
        usage = total_usage(self._choices)
        body = {
            "id": self._public_id,
            "object": "chat.completion" if self._chat else "text_completion",
            "created": self._created,
            "model": self._model_name,
            "choices": outputs,
            "usage": msgspec.Raw(usage.to_json()),
        }
        self._metrics.count_request(usage, time.perf_counter() - self._exchange.arrival)
        await self._exchange.respond(200, msgspec.json.encode(body), _mode_headers(started))

    def _logprobs(
        self, tokens: tuple[Token, ...], num_top: int, text_offset: int
    ) -> dict[str, Any]:
        if self._chat:
            return chat_logprobs(tokens, num_top, self._tokenizer)
        return completion_logprobs(tokens, num_top, self._tokenizer, text_offset)


def _mode_headers(started: list[Started]) -> Headers:
    """Which mode served the request and where; several outputs may differ, then all are named."""
    fields = (
        (b"x-baton-mode", [one.mode.value for one in started]),
        (b"x-baton-prefill-worker", [one.prefill_worker for one in started]),
        (b"x-baton-decode-worker", [one.decode_worker for one in started]),
    )
    return [
        (name, ",".join(dict.fromkeys(values)).encode("latin-1", "replace"))
        for name, values in fields
        if values
    ]
