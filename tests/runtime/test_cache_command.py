"""`baton cache` against a running deployment, and against what is not one."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from real_deployment import Served, serving
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import BatonError, ConfigError
from baton.telemetry.cache_client import clear_cache, fetch_cache

WORDS = "the quick brown fox jumps over the lazy dog and runs away from all of them "


async def run(*arguments: str) -> str:
    """What the verb prints; the server runs on this thread's loop, so the verb gets another."""
    result = await asyncio.to_thread(CliRunner().invoke, app, ["cache", *arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return result.output


async def pool_of(served: Served) -> dict:
    """The pool once both workers have said what they hold now."""
    await served.until_idle(10)
    return json.loads(await run("--json", "--url", served.client.base_url.__str__()))


@pytest.mark.slow
async def test_the_verb_shows_what_lives_where_and_clears_it(tmp_path):
    disk = [f'cache.disk_dir="{tmp_path}"', "cache.disk_nbytes=20000000"]
    async with serving("gateway.allow_cache_clear=true", *disk) as served:
        url = str(served.client.base_url)
        prompt = {"prompt": WORDS * 2, "max_tokens": 4}
        for _ in range(2):
            await served.stream(prompt)
        view = await pool_of(served)
        assert (view["milestone"], view["eviction"], view["generation"]) == ("prompt", "lru", 0)
        assert [worker["worker_id"] for worker in view["workers"]] == ["prefill-0", "decode-1"]
        for worker in view["workers"]:
            memory, lower = worker["tiers"]
            assert (memory["tier"], lower["tier"]) == ("memory", "disk")
            assert memory["num_named"] == memory["num_claimed"] == lower["num_named"] > 2
            assert memory["hit_ratio"] == memory["num_hits"] / max(1, worker["num_asked"])
            assert lower["num_hits"] == 0
        computing, decoding = view["workers"]
        assert computing["tiers"][0]["num_hits"] > 0 == decoding["tiers"][0]["num_hits"]
        assert (computing["num_handed"], computing["num_visible"]) == (0, 0)
        assert 0 < decoding["num_visible"] < decoding["num_handed"]
        assert view["index"]["num_claims"] == 4 * view["index"]["num_blocks"]
        (hot,) = view["hot"]
        assert hot["hits"] == pytest.approx(1, abs=0.1)
        assert sorted(hot["owners"]) == sorted(
            [w, t] for w in ("prefill-0", "decode-1") for t in ("memory", "disk")
        )
        table = await run("--url", url)
        assert "milestone prompt" in table
        assert hot["name"] in table
        assert all(name in table for name in ("prefill-0", "decode-1", "disk", "Hottest"))
        assert "jumps" not in table

        assert "generation is 1" in await run("--clear", "--url", url)
        view = await pool_of(served)
        assert view["generation"] == view["totals"]["cache_clears"] == 1
        assert view["index"]["num_claims"] == 0
        assert not any(t["num_named"] for w in view["workers"] for t in w["tiers"])
        text = (await served.client.get("/metrics")).text
        assert "baton_cache_generation 1" in text
        assert 'baton_cache_tier_hits_total{worker="prefill-0",tier="memory"}' in text


@contextmanager
def another_server(status: int, body: bytes) -> Iterator[str]:
    """Something that speaks HTTP and is not Baton."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # What is left unread when a connection closes resets it, and the answer is lost.
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>hello</html>"),
        (200, b"\xff\xfe"),
        (200, b'{"object": "list"}'),
        (200, b"[" * 100_000),
        (404, b"not found"),
        (404, b'{"error": {"message": "there is nothing at /cache"}}'),
        (500, b""),
    ],
)
def test_what_is_not_baton_is_named(status, body):
    with another_server(status, body) as url:
        for ask in (fetch_cache, clear_cache):
            with pytest.raises(ConfigError, match=f"--url {url} is not a Baton server"):
                ask(url)


def test_what_a_baton_does_not_have_is_said_without_advice_on_its_address():
    body = b'{"error": {"message": "worker \'x\' is not up", "code": "cannot_drain"}}'
    with another_server(404, body) as url, pytest.raises(BatonError) as raised:
        fetch_cache(url)
    assert str(raised.value) == "worker 'x' is not up"


def test_a_refusal_is_said_in_the_servers_words():
    body = b'{"error": {"message": "gateway.allow_cache_clear is false; serve with it"}}'
    with another_server(403, body) as url, pytest.raises(BatonError) as raised:
        clear_cache(url)
    assert "gateway.allow_cache_clear is false" in str(raised.value)


def test_nobody_at_the_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"does not answer: .*refused.*baton serve"):
            fetch_cache(url)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("127.0.0.1:8000", "has no scheme"),
        ("", "has no scheme"),
        ("ftp://127.0.0.1/", "has the scheme 'ftp'; use http or https"),
        ("http://", "is malformed (no host)"),
        ("http://:80", "is malformed (no host)"),
        ("http://127.0.0.1:abc", "is malformed (Port could not be cast"),
        ("http://127.0.0.1:99999", "is malformed (Port out of range"),
        ("http://127.0.0.1:0", "is malformed (port 0)"),
        ("http://[::1", "is malformed (Invalid IPv6 URL)"),
        ("http://a b/", "is malformed (white space)"),
    ],
)
def test_an_address_that_cannot_be_one(url, what):
    with pytest.raises(ConfigError) as raised:
        fetch_cache(url)
    text = str(raised.value)
    assert text.startswith(f"--url {url!r} {what}")
    assert text.endswith("like http://127.0.0.1:8000")


async def test_the_verb_fails_with_the_clear_error():
    with pytest.raises(ConfigError, match="has no scheme"):
        await run("--url", "nowhere")
