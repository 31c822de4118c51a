"""Clients that go away or stop reading, over real sockets; and the server's own life."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from gateway_fakes import (
    CONFIG,
    HANG,
    MODEL,
    STARTED,
    ScriptedBackend,
    Served,
    http_post,
    read_to_end,
    tiny_tokenizer,
    wait_until,
)

from baton.errors import ConfigError
from baton.runtime.gateway import create_app, serve_app
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


def test_pipelined_requests_are_all_cancelled(served: Served, backend: ScriptedBackend) -> None:
    backend.script = lambda request: [HANG]
    raw = served.connect()
    raw.sendall(2 * http_post(COMPLETIONS, b'{"prompt":"x"}'))
    wait_until(lambda: len(backend.submitted) == 1)
    time.sleep(0.02)
    raw.close()
    wait_until(lambda: not backend.held)


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
    assert backend.held
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 3
    assert not backend.held
    assert b"[DONE]" not in await reader.read()
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
