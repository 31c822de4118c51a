"""Clients that go away or stop reading, over real sockets; and the server's own life."""

import asyncio
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import openai
import pytest
from gateway_fakes import (
    CONFIG,
    HANG,
    MODEL,
    STARTED,
    ScriptedBackend,
    Served,
    Step,
    http_post,
    read_to_end,
    running_server,
    tiny_tokenizer,
    wait_until,
)

from baton.core.request import Request
from baton.errors import ConfigError
from baton.runtime.gateway import create_app, protocol, serve_app
from baton.runtime.gateway.server import bind

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("begun", [False, True])
def test_disconnect_cancels_everything_at_once(
    stream: bool, n: int, begun: bool, served: Served, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: [STARTED, *backend.tokens("x"), HANG] if begun else [HANG]
    raw = served.post_raw(CHAT, {"messages": HELLO, "stream": stream, "n": n})
    wait_until(lambda: len(backend.submitted) == n)
    if stream and begun:
        assert raw.recv(65536)
    time.sleep(0.02)
    began = time.monotonic()
    raw.close()
    wait_until(lambda: not backend.held)
    assert time.monotonic() - began < 0.5
    assert sorted(backend.cancelled) == sorted(
        (request.request_id, "disconnect") for request in backend.submitted
    )


def test_official_client_that_closes_its_stream(
    client: openai.OpenAI, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: [STARTED, *backend.tokens("some words"), HANG]
    stream = client.completions.create(model=MODEL, prompt="x", stream=True)
    assert next(iter(stream)).choices[0].text
    stream.close()
    wait_until(lambda: not backend.held)


def test_nothing_is_written_to_a_client_that_reset_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tokens that are ready all at once, before the event loop has a turn to see it go."""
    is_busy, left = threading.Event(), threading.Event()
    taken: list[int] = []

    def script(request: Request) -> Iterator[Step]:
        yield STARTED
        yield words[0]
        yield 0.05  # the first token leaves
        is_busy.set()  # this loop has no turn until the client has left
        assert left.wait(5)
        for word in words:
            taken.append(1)
            yield word
        yield HANG

    with running_server(run_loop=asyncio.run) as served:
        backend = served.backend
        words = backend.tokens("word " * 40) * 25
        backend.is_yielding = False
        backend.script = script
        raw = served.post_raw(COMPLETIONS, {"prompt": "x", "stream": True})
        while b"data:" not in raw.recv(65536):
            pass
        assert is_busy.wait(5)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
        began = time.monotonic()
        left.set()
        wait_until(lambda: not backend.held)
        assert time.monotonic() - began < 0.5
        assert backend.cancelled == [(backend.submitted[0].request_id, "disconnect")]
        assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []
        assert len(taken) < 10 < len(words), "the first write that fails ends the work"
        gone = httpx.get(f"{served.url}/metrics", trust_env=False).text
        assert 'baton_client_gone_total{model_name="tiny/model",reason="disconnect"} 1.0' in gone


def test_half_closed_connection_counts_as_gone(served: Served, backend: ScriptedBackend) -> None:
    backend.script = lambda request: [HANG]
    raw = served.post_raw(COMPLETIONS, {"prompt": "x"})
    wait_until(lambda: len(backend.submitted) == 1)
    raw.shutdown(socket.SHUT_WR)
    wait_until(lambda: not backend.held)
    raw.close()


def test_disconnect_inside_the_body_submits_nothing(
    served: Served, backend: ScriptedBackend
) -> None:
    raw = served.connect()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    time.sleep(0.02)
    raw.close()
    time.sleep(0.05)
    assert not backend.submitted


@pytest.mark.parametrize("pause_s", [0.0, 0.03])
def test_pipelining_does_not_hide_a_disconnect(
    pause_s: float, served: Served, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: [HANG]
    raw = served.connect()
    raw.sendall(http_post(COMPLETIONS, b'{"prompt":"x"}'))
    time.sleep(pause_s)
    raw.sendall(http_post(COMPLETIONS, b'{"prompt":"' + b"y" * 60_000 + b'"}') * 8)
    wait_until(lambda: len(backend.submitted) == 1)
    time.sleep(0.02)
    raw.close()
    wait_until(lambda: not backend.held)
    assert len(backend.submitted) == 1


def test_pipelined_request_is_dropped_and_the_connection_closed(
    served: Served, backend: ScriptedBackend
) -> None:
    backend.script = lambda request: [0.05, *backend.says(request, "one")]
    raw = served.connect()
    raw.sendall(2 * http_post(COMPLETIONS, b'{"prompt":"x"}'))
    assert read_to_end(raw).count(b"HTTP/1.1 200") == 1
    raw.close()


def test_keep_alive_serves_one_after_the_other(served: Served) -> None:
    raw = served.connect()
    for _ in range(3):
        raw.sendall(http_post(COMPLETIONS, b'{"prompt":"x"}'))
        answer = raw.recv(65536)
        while b'"usage"' not in answer:
            answer += raw.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
    raw.close()


def test_reader_that_stalls_is_cancelled(served: Served, backend: ScriptedBackend) -> None:
    words = backend.tokens("stalled ")
    backend.script = lambda request: [STARTED, *words * 40_000, HANG]
    body = {"prompt": "x", "stream": True}
    raw = served.post_raw(COMPLETIONS, body, receive_nbytes=4096)
    assert raw.recv(100)
    began = time.monotonic()
    wait_until(lambda: not backend.held, timeout_s=20)
    assert backend.cancelled == [(backend.submitted[0].request_id, "disconnect")]
    assert time.monotonic() - began > CONFIG.stream_stall_s * 0.9
    # The connection is dropped: whatever it still holds ends without [DONE].
    rest = b""
    with suppress(ConnectionResetError):
        while chunk := raw.recv(65536):
            rest += chunk
    assert b"[DONE]" not in rest
    raw.close()


def test_slow_but_steady_reader_is_served(served: Served, backend: ScriptedBackend) -> None:
    backend.script = lambda request: backend.says(request, "word " * 2000)
    body = {"prompt": "x", "stream": True}
    raw = served.post_raw(COMPLETIONS, body, receive_nbytes=4096)
    data = b""
    while b"[DONE]" not in data:
        data += raw.recv(4096)
        time.sleep(0.001)
    assert not backend.cancelled
    raw.close()


@pytest.fixture
def quiet() -> Iterator[None]:
    logger = logging.getLogger("uvicorn.error")
    logger.disabled = True
    yield
    logger.disabled = False


async def test_shutdown_is_bounded_and_cancels(quiet: None) -> None:
    backend = ScriptedBackend(tiny_tokenizer())
    backend.script = lambda request: [STARTED, *backend.tokens("x"), HANG]
    app = create_app(backend, backend.tokenizer, CONFIG, model_name=MODEL, version="0")
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_app(
            app, "127.0.0.1", 0, on_started=lambda _, port: started.set_result(port), shutdown_s=1
        )
    )
    port = await started
    assert port > 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(http_post(COMPLETIONS, b'{"prompt":"x","stream":true}'))
    assert b"200" in await reader.readline()
    waiting_reader, waiting_writer = await asyncio.open_connection("127.0.0.1", port)
    waiting_writer.write(http_post(COMPLETIONS, b'{"prompt":"x"}'))
    while len(backend.held) < 2:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 3
    assert not backend.held
    rest = await reader.read()
    assert b'"shutting_down"' in rest
    assert b"[DONE]" not in rest
    assert b"503" in await waiting_reader.readline()
    waiting_writer.close()
    with pytest.raises(OSError, match=r".*"):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def test_port_in_use_is_a_clear_error() -> None:
    taken = bind("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"gateway\.port {port} is already in use.*--set"):
        await serve_app(None, "127.0.0.1", port, on_started=lambda *_: None)
    taken.close()
    with pytest.raises(ConfigError, match=r"gateway\.host"):
        bind("no.such.host.invalid", 0)


def test_stream_error_keeps_the_framing(served: Served, backend: ScriptedBackend) -> None:
    backend.script = lambda request: [STARTED, *backend.tokens("x"), RuntimeError("lost")]
    raw = served.connect()
    body = b'{"prompt":"x","stream":true}'
    raw.sendall(http_post(COMPLETIONS, body).replace(b"host: x", b"host: x\r\nconnection: close"))
    assert read_to_end(raw).endswith(b"0\r\n\r\n")
    raw.close()


def test_late_headers_close_the_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_S", 0.1)
    for data in (b"", b"GET /health HTTP/1.1\r\nhost"):
        raw = served.connect()
        raw.sendall(data)
        assert raw.recv(100) == b""
        raw.close()


def test_storm_of_cancelled_requests(served: Served, backend: ScriptedBackend) -> None:
    rng = random.Random(5)
    backend.script = lambda request: [
        rng.random() * 0.02, STARTED, *backend.tokens("some words"), rng.random() * 0.02,
        *backend.says(request, "and more of them")[1:],
    ]  # fmt: skip
    for round_number in range(6):
        sockets = []
        for number in range(20):
            body = {"prompt": "x", "stream": bool(number % 2), "n": 1 + number % 3, "stop": "them"}
            sockets.append(served.post_raw(COMPLETIONS, body))
        rng.shuffle(sockets)
        for raw in sockets:
            time.sleep(rng.random() * 0.003)
            raw.close()
        wait_until(lambda: not backend.held)
        assert len(backend.submitted) <= 40 * (round_number + 1)
    assert any(reason == "disconnect" for _, reason in backend.cancelled)
    text = httpx.get(served.url + "/metrics", trust_env=False).text
    gauges = [line for line in text.splitlines() if line.startswith("vllm:num_requests_")]
    assert len(gauges) == 2
    assert all(line.endswith(" 0.0") for line in gauges)


def test_nothing_is_read_of_a_body_that_is_announced_too_large(served: Served) -> None:
    raw = served.connect()
    raw.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n"
        b"expect: 100-continue\r\n\r\n"
    )
    answer = read_to_end(raw)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"100 Continue" not in answer
    raw.close()


async def test_any_asgi_server_will_do() -> None:
    backend = ScriptedBackend(tiny_tokenizer())
    app = create_app(backend, backend.tokenizer, CONFIG, model_name=MODEL, version="0")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.post(CHAT, json={"messages": HELLO, "stream": True})
    assert answer.text.endswith("data: [DONE]\n\n")
    assert not backend.held
