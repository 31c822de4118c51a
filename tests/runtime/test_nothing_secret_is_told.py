"""No log, trace, span, metric or feed holds what a client said, a key, or the name of a prefix."""

import asyncio
import base64
import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import zmq

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="extra `otel` is not installed"
)

from baton.config import load_config
from baton.runtime.deployment import deploy
from baton.runtime.front import open_front

START_S = 120.0
MARKER = "zanzibarquux"
"""In every text that a client sends here, and in nothing that the deployment says by itself."""
TOKENS = [91, 7, 203, 44, 158, 66, 12, 240, 133, 19, 77, 101, 5, 222, 38, 190] * 3


@contextmanager
def collecting() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP endpoint that keeps the bytes it is sent."""
    kept: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def forms_of(secret: bytes) -> Iterator[bytes]:
    """The ways in which bytes are usually written."""
    yield from (secret, secret.hex().encode(), secret.hex().upper().encode())
    yield from (
        base64.b64encode(secret).rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
    )
    yield repr(secret)[2:-1].encode()


def lists_of(tokens: list[int]) -> Iterator[bytes]:
    for separator in (", ", ",", " "):
        yield separator.join(map(str, tokens[:6])).encode()


async def talk(client: httpx.AsyncClient) -> None:
    """Requests that go well, go wrong, are refused, are left, and say the marker everywhere."""
    headers = {"authorization": f"Bearer sk-{MARKER}", "x-baton-tenant": MARKER}
    text = f"Tell {MARKER} about the sea. " * 6
    good: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "cache_salt": f"salt {MARKER}"}
    for number, body in enumerate(
        (
            {"prompt": text},
            {"prompt": text},
            {"prompt": TOKENS, "stop": [MARKER]},
            {"prompt": text, "user": MARKER, "metadata": {"a": MARKER}},
        )
    ):
        answer = await client.post("/v1/completions", json={**good, **body}, headers=headers)
        assert answer.status_code == 200, (number, answer.text)
    chat = {**good, "messages": [{"role": "user", "content": text}]}
    answer = await client.post("/v1/chat/completions", json=chat, headers=headers)
    assert answer.status_code == 200, answer.text
    for body in (
        {"prompt": text, "top_p": MARKER},
        {"prompt": text, "cache_salt": MARKER * 100},
        {"prompt": text * 3000},
        {"prompt": {"a": MARKER}},
        {"prompt": text, "guided_regex": MARKER},
        {"prompt": text, "model": MARKER},
    ):
        answer = await client.post("/v1/completions", json=body, headers=headers)
        assert 400 <= answer.status_code < 500, (body, answer.status_code)
    answer = await client.post(
        "/v1/completions", content=b'{"prompt":"' + MARKER.encode(), headers=headers
    )
    assert answer.status_code == 400
    assert (await client.get(f"/v1/{MARKER}")).status_code == 404
    long = {**good, "prompt": text, "max_tokens": 300, "ignore_eos": True, "stream": True}
    async with client.stream("POST", "/v1/completions", json=long, headers=headers) as stream:
        async for _ in stream.aiter_lines():
            break


class Spy:
    """Keeps the private keys of the deployment as they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[bytes] = []
        self._watch(monkeypatch, zmq, "curve_keypair", lambda pair: pair[1])
        self._watch(monkeypatch, secrets, "token_bytes", lambda drawn: drawn)

    def _watch(
        self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, pick: Callable[[Any], bytes]
    ) -> None:
        made = getattr(module, name)

        def watched(*arguments: Any) -> Any:
            result = made(*arguments)
            self.keys.append(pick(result))
            return result

        monkeypatch.setattr(module, name, watched)


@pytest.mark.slow
async def test_nothing_that_is_written_tells_what_was_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Debug logs, traces, spans, metrics, feeds and whatever the processes print."""
    spy = Spy(monkeypatch)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own
    told: dict[str, bytes] = {}
    with collecting() as (collector, spans):
        settings = [
            "model.name=tiny", "gateway.port=0", "cluster.control=tcp",
            "gateway.tenants=api_key", "worker.kv_nbytes=8388608",
            f'telemetry.otlp_endpoint="{collector}"',
        ]  # fmt: skip
        config = load_config(None, settings)
        async with (
            deploy(config, lambda *_: None, trace_dir=tmp_path) as deployment,
            open_front(config, deployment) as front,
            httpx.AsyncClient(base_url=front.url, timeout=60, trust_env=False) as client,
        ):
            await deployment.wait_ready(START_S)
            await talk(client)
            deployment.supervisor.kill("decode-1")  # what a death makes everybody say
            await asyncio.sleep(2.0)
            for path in ("/metrics", "/traces", "/dashboard/feed", "/version"):
                told[path] = (await client.get(path)).content
            for row in (await client.get("/dashboard/feed")).json()["requests"]:
                page = await client.get("/dashboard/request", params={"id": row["request_id"]})
                told[f"/dashboard/request {row['state']}"] = page.content
            names = list(itertools.islice(deployment.router.node.context.holdings, 64))
    printed = capfd.readouterr()
    told["standard output"], told["standard error"] = printed.out.encode(), printed.err.encode()
    told["logs"] = "\n".join(one.getMessage() for one in caplog.records).encode()
    told["spans"] = b"".join(spans)
    for path in tmp_path.iterdir():
        told[path.name] = path.read_bytes()
    assert all(told[name] for name in ("/traces", "logs", "spans", "router.jsonl")), sorted(told)
    assert b"finished" in told["spans"] and len(names) > 3 and len(spy.keys) > 3

    wanted = {
        f"the marker as {form!r}": form for form in (MARKER.encode(), MARKER.upper().encode())
    }
    wanted |= {f"the tokens as {form!r}": form for form in lists_of(TOKENS)}
    wanted |= {
        f"a key as {form!r}": form for key in spy.keys for form in forms_of(key) if len(form) > 7
    }
    wanted |= {f"a prefix as {form!r}": form for name in names for form in forms_of(name[:8])}
    found = [
        f"{what} in {where}"
        for where, data in told.items()
        for what, f in wanted.items()
        if f in data
    ]
    assert found == []
