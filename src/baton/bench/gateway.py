"""Streaming rate and added latency of the HTTP edge, beside bare encoding and socket writes.

A stub backend in the server process delivers one token per stream and step; the real uvicorn
server runs on one core, a minimal client on another. `limit` replaces the whole gateway by a
protocol that encodes each chunk with msgspec and writes it to the socket. The rate is measured at
full speed; the latency, from the backend's delivery to the client's receipt, at half of the
gateway's rate, because at full speed it only measures the queue in front.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import msgspec
import tokenizers
import uvloop
from tokenizers import decoders, models, pre_tokenizers, trainers

from baton.config import GatewayConfig
from baton.core.delivery import Delivery, Started, Tokens
from baton.core.effects import Trace
from baton.core.ids import Mode
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.request import Request, Token
from baton.runtime.gateway import Tokenizer, create_app, serve_app

MODEL = "stub"
TOKEN_TEXT = " quick"
MARK = b'"text":'
WARMUP_S = 0.5
START_TIMEOUT_S = 30.0
_SPAWN = multiprocessing.get_context("spawn")


def measure_gateway(seconds: float = 3.0, streams: int = 64, rounds: int = 3) -> dict[str, float]:
    """Rates in tokens per second and latencies in microseconds.

    Each round measures the gateway and the limit for `seconds` each, one after the other, so that
    a busy machine slows both; rates are medians over the rounds.
    """
    pairs = [
        (
            _run_phase(_serve_gateway, seconds, streams, 0.0)[0],
            _run_phase(_serve_raw, seconds, streams, 0.0)[0],
        )
        for _ in range(rounds)
    ]
    rate = statistics.median(gateway for gateway, _ in pairs)
    limit = statistics.median(raw for _, raw in pairs)
    period = streams / (rate / 2)
    paced, gateway_us = _run_phase(_serve_gateway, seconds, streams, period)
    _, limit_us = _run_phase(_serve_raw, seconds, streams, period)
    return {
        "streams": streams,
        "tokens_per_s": rate,
        "tokens_per_s_lowest": min(gateway for gateway, _ in pairs),
        "limit_tokens_per_s": limit,
        "ratio": statistics.median(gateway / raw for gateway, raw in pairs),
        "paced_tokens_per_s": paced,
        "latency_median_us": _percentile(gateway_us, 0.5),
        "latency_p99_us": _percentile(gateway_us, 0.99),
        "limit_latency_median_us": _percentile(limit_us, 0.5),
        "limit_latency_p99_us": _percentile(limit_us, 0.99),
    }


class _Engine:
    """Steps through all streams; each step offers one token to every stream that took the last."""

    def __init__(self, period: float) -> None:
        self.times: dict[str, list[float]] = {}
        self._period = period
        self._streams: dict[str, _Mailbox] = {}

    def open(self, name: str) -> "_Mailbox":
        self.times[name] = []
        mailbox = self._streams[name] = _Mailbox()
        return mailbox

    def close(self, name: str) -> None:
        self._streams.pop(name, None)

    async def run(self) -> None:
        clock = time.perf_counter
        due = clock()
        while True:
            for name, mailbox in self._streams.items():
                if not mailbox.waiting:
                    self.times[name].append(clock())
                    mailbox.put()
            due = max(due + self._period, clock() - self._period)
            await asyncio.sleep(max(0.0, due - clock()))


class _Mailbox:
    """Counts the tokens offered to one stream and wakes its reader."""

    def __init__(self) -> None:
        self.waiting = 0
        self._waiter: asyncio.Future[None] | None = None

    def put(self) -> None:
        self.waiting += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> None:
        if not self.waiting:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        self.waiting -= 1


class _NoPool(msgspec.Struct):
    """There is no K/V."""


class _StubBackend:
    """Delivers the same token for ever, as fast as the engine steps."""

    def __init__(self, engine: _Engine, tokenizer: Tokenizer) -> None:
        self.info: ModelInfo | None = ModelInfo(
            name=MODEL,
            max_model_len=1 << 40,
            vocab_size=tokenizer.vocab_size,
            eos_token_ids=(0,),
            identity=ModelIdentity(model=MODEL, checkpoint_hash="", tokenizer_hash=""),
            layout=KVLayout(num_layers=1, num_kv_heads=1, head_dim=8, block_size=16),
        )
        self._engine = engine
        self._token_id = tokenizer.encode(TOKEN_TEXT)[-1]

    async def submit(self, request: Request) -> AsyncGenerator[Delivery, None]:
        mailbox = self._engine.open(request.client_request_id)
        try:
            yield Started(mode=Mode.COLOCATED, prefill_worker="stub", decode_worker="stub")
            index = 0
            while True:
                await mailbox.get()
                yield Tokens(tokens=(Token(index=index, token_id=self._token_id),))
                index += 1
        finally:
            self._engine.close(request.client_request_id)

    def cancel(self, request_id: str, reason: str) -> None:
        """Closing the iterator ends the stream."""

    def ready(self) -> str:
        return ""

    def status(self) -> dict[str, Any]:
        return {}

    def deployment(self) -> None:
        """Nothing is deployed."""

    def cache(self) -> msgspec.Struct:
        return _NoPool()

    def observe(self, trace: Trace) -> None:
        """Nobody traces here."""

    def drain_worker(self, worker_id: str, timeout_s: float) -> None:
        """Not asked here."""
        raise AssertionError("this bench removes no worker")

    def clear_cache(self) -> int:
        return 0

    def traces(self) -> bytes:
        return b""

    def dashboard(self) -> msgspec.Struct:
        return _NoPool()

    def dashboard_request(self, request_id: str) -> msgspec.Struct | None:
        return None

    def metrics(self) -> bytes:
        return b""


class _RawProtocol(asyncio.Protocol):
    """What is left without a gateway: encode one chunk, write it."""

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine
        self._name = ""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._name:
            self._name = data.split(b"x-request-id: ")[1].split(b"\r")[0].decode()
            self._task = asyncio.get_running_loop().create_task(self._write())

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.close(self._name)
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        encode = msgspec.json.Encoder().encode
        mailbox = self._engine.open(self._name)
        while True:
            await mailbox.get()
            choice = {"index": 0, "text": TOKEN_TEXT, "logprobs": None, "finish_reason": None}
            chunk = encode(
                {
                    "id": "cmpl-" + "0" * 32,
                    "object": "text_completion",
                    "created": 1_700_000_000,
                    "model": MODEL,
                    "choices": [choice],
                }
            )
            event = b"data: " + chunk + b"\n\n"
            self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


class _Client(asyncio.Protocol):
    """One stream's reader: notes when each token's text arrived, and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self.receipts: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        body = b'{"prompt":[5],"stream":true,"max_tokens":1000000000}'
        self.transport.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-id: %b\r\n"
            b"content-length: %d\r\n\r\n%b" % (self._name.encode(), len(body), body)
        )

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        data = self._rest + data
        self.receipts.extend([now] * data.count(MARK))
        self._rest = data[-(len(MARK) - 1) :]


def _run_phase(
    target: Any, seconds: float, streams: int, period: float
) -> tuple[float, list[float]]:
    """Tokens per second, and each token's latency in microseconds."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = _SPAWN.Pipe()
    server = _SPAWN.Process(target=target, args=(theirs, cores[0], period), daemon=True)
    server.start()
    theirs.close()
    try:
        if not ours.poll(START_TIMEOUT_S):
            raise TimeoutError("the benchmark's server did not start")
        port = ours.recv()
        os.sched_setaffinity(0, {cores[-1]})
        clients, begin, end = uvloop.run(_receive(port, seconds, streams))
        ours.send("stop")
        times: dict[str, list[float]] = ours.recv()
    finally:
        os.sched_setaffinity(0, cores)
        server.terminate()
        server.join()
    received = 0
    latencies = []
    for name, receipts in clients.items():
        for sent, got in zip(times[name], receipts, strict=False):
            if begin <= got < end:
                received += 1
                latencies.append((got - sent) * 1e6)
    return received / (end - begin), latencies


async def _receive(
    port: int, seconds: float, streams: int
) -> tuple[dict[str, list[float]], float, float]:
    loop = asyncio.get_running_loop()
    clients = {f"stream-{index}": _Client(f"stream-{index}") for index in range(streams)}
    for name in clients:
        await loop.create_connection(partial(clients.__getitem__, name), "127.0.0.1", port)
    await asyncio.sleep(WARMUP_S)
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    end = time.perf_counter()
    for client in clients.values():
        client.transport.abort()
    return {name: client.receipts for name, client in clients.items()}, begin, end


def _serve_gateway(connection: Connection, core: int, period: float) -> None:
    engine = _Engine(period)
    tokenizer = _stub_tokenizer()
    app = create_app(
        _StubBackend(engine, tokenizer),
        tokenizer,
        GatewayConfig(),
        model_name=MODEL,
        version="bench",
    )

    async def serve() -> None:
        await serve_app(
            app, "127.0.0.1", 0, on_started=lambda _, port: connection.send(port), shutdown_s=1
        )

    _serve(serve(), engine, connection, core)


def _serve_raw(connection: Connection, core: int, period: float) -> None:
    engine = _Engine(period)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _RawProtocol(engine), "127.0.0.1", 0)
        connection.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    _serve(serve(), engine, connection, core)


def _serve(serving: Any, engine: _Engine, connection: Connection, core: int) -> None:
    """Run server and engine on one core until told to stop; then hand over the times."""
    os.sched_setaffinity(0, {core})

    async def main() -> None:
        stepping = asyncio.create_task(engine.run())
        server = asyncio.create_task(serving)
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), stopped.set)
        await stopped.wait()
        os.set_blocking(connection.fileno(), True)  # the loop had made it non-blocking
        connection.send(engine.times)
        for task in (stepping, server):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    uvloop.run(main())


def _stub_tokenizer() -> Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TOKEN_TEXT] * 8, trainer)
    return Tokenizer(made)


def _percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    found = measure_gateway(options.seconds, options.streams, options.rounds)
    for name, value in found.items():
        print(f"{name:>24} {value:12.2f}" if name == "ratio" else f"{name:>24} {value:12,.0f}")


if __name__ == "__main__":
    main()
