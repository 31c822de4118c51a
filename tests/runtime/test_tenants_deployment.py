"""Reuse as a client sees it over HTTP: within a tenant and a salt, and `cached_tokens` is true."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from real_deployment import Served, serving

from baton.nodes.fleet import WorkerView

pytestmark = pytest.mark.slow

BLOCK = 16
WORDS = "the quick brown fox jumps over the lazy dog and runs away from all of them "
FORMS = [
    (path, stream) for path in ("/v1/completions", "/v1/chat/completions") for stream in (0, 1)
]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a client was told of one answer, and how many rows of its prompt really moved."""

    prompt_tokens: int
    cached_tokens: int
    text: str
    moved_rows: int

    @property
    def most_reusable(self) -> int:
        """Whole blocks before the last token, which is always computed."""
        return (self.prompt_tokens - 1) // BLOCK * BLOCK


class Client:
    """Asks over HTTP and looks at the decode worker's own ledger beside it."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def ask(
        self,
        prompt: str,
        path: str,
        stream: int,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Asked:
        said = {"prompt": prompt}
        if "chat" in path:
            said = {"messages": [{"role": "user", "content": prompt}]}
        body: dict[str, Any] = {
            "temperature": 0.0, "max_tokens": 4, "ignore_eos": True, **said, **more,
        }  # fmt: skip
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        before = await self._moved()
        answer = await self._served.client.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        usage, text = _read(answer.text, stream)
        return Asked(
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
            text=text,
            moved_rows=await self._moved() - before,
        )

    async def _moved(self) -> int:
        """Rows of K/V that the decode worker has received, in a heartbeat sent after now."""
        view: WorkerView = self._served.view("decode-1")
        seen = view.snapshot.version if view.snapshot else 0
        async with asyncio.timeout(10):
            while view.snapshot is None or view.snapshot.version < seen + 3:
                await asyncio.sleep(0.005)
        nbytes = self._served.counter("decode-1", "handoff_logical_bytes")
        return nbytes // view.info.model.layout.bytes_per_token


def _read(text: str, stream: int) -> tuple[dict[str, Any], str]:
    if not stream:
        body = msgspec.json.decode(text)
        choice = body["choices"][0]
        return body["usage"], choice.get("text") or choice["message"]["content"]
    items = [msgspec.json.decode(x[6:]) for x in text.splitlines() if x.startswith("data: {")]
    choices = [choice for item in items for choice in item["choices"]]
    said = [c.get("text") or c.get("delta", {}).get("content") or "" for c in choices]
    return items[-1]["usage"], "".join(said)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with serving("gateway.tenants=api_key", "router.heartbeat_ms=10") as served:
        yield Client(served)


def token(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "stream"), FORMS)
async def test_tenants_do_not_share_and_one_tenant_does(client: Client, path: str, stream: int):
    prompt, alice, bob = WORDS * 3, token(f"alice {path} {stream}"), token(f"bob {path} {stream}")
    first = await client.ask(prompt, path, stream, alice)
    other = await client.ask(prompt, path, stream, bob)
    nobody = await client.ask(prompt, path, stream, cache_salt=f"{path} {stream}")
    again = await client.ask(prompt, path, stream, alice)
    assert first.most_reusable >= 2 * BLOCK
    for cold in (first, other, nobody):
        assert (cold.cached_tokens, cold.moved_rows) == (0, cold.prompt_tokens)
    assert again.cached_tokens == again.most_reusable
    assert {one.text for one in (first, other, nobody, again)} == {first.text}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "stream"), FORMS)
async def test_a_salt_separates_within_a_tenant(client: Client, path: str, stream: int):
    prompt, alice, bob = WORDS * 3, token(f"carol {path} {stream}"), token(f"dave {path} {stream}")
    for salt in ("a", "b"):
        cold = await client.ask(prompt, path, stream, alice, cache_salt=salt)
        assert cold.cached_tokens == 0
    again = await client.ask(prompt, path, stream, alice, cache_salt="a")
    assert again.cached_tokens == again.most_reusable
    # The same salt of another tenant opens nothing.
    theirs = await client.ask(prompt, path, stream, bob, cache_salt="a")
    assert theirs.cached_tokens == 0


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "stream"), FORMS)
async def test_received_rows_are_not_cached_rows(client: Client, path: str, stream: int):
    """What decode got over the link was computed a moment ago: nobody spared anything (R43)."""
    start, alice = WORDS * 2, token(f"erin {path} {stream}")
    cold = await client.ask(start, path, stream, alice)
    assert cold.moved_rows == cold.prompt_tokens
    longer = await client.ask(start + WORDS, path, stream, alice)
    assert 0 < longer.cached_tokens < longer.most_reusable
    assert longer.cached_tokens % BLOCK == 0
    # Both workers hold the same prefix, so what moved is exactly what prefill computed.
    assert longer.moved_rows == longer.prompt_tokens - longer.cached_tokens


@pytest.mark.asyncio(loop_scope="module")
async def test_several_choices_count_the_prompt_once(client: Client):
    prompt, alice = WORDS * 3, token("frank")
    first = await client.ask(prompt, "/v1/completions", 0, alice, n=3)
    again = await client.ask(prompt, "/v1/completions", 0, alice, n=3)
    assert first.prompt_tokens == again.prompt_tokens
    assert (first.cached_tokens, again.cached_tokens) == (0, again.most_reusable)
