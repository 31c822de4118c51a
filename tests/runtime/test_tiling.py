"""Phases of real requests add up to what their clients measured, whatever happens to them.

Tolerance: client and gateway are two tasks of one event loop on one host, so the difference is the
way through the loopback socket, twice, and the loop's own lag. Each request may be off by SLACK_MS
and the median of all by MEDIAN_MS: what a gap or an overlap of two phases would add is larger.
"""

import asyncio
import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import pytest
from real_deployment import Served

from baton.config import load_config
from baton.runtime.deployment import deploy
from baton.runtime.front import open_front
from baton.telemetry.trace.command import read_source
from baton.telemetry.trace.phases import Phase
from baton.telemetry.trace.story import Story

START_S = 240.0
"""Bounds the start of five processes on a laden machine; idle, it takes five seconds."""
NUM_REQUESTS, NUM_AT_ONCE = 520, 8
SLACK_MS, MEDIAN_MS = 150.0, 10.0
_SEED = 7


class Measured(msgspec.Struct, kw_only=True):
    """What a client saw of one request; times are of its own clock."""

    kind: str
    first_ms: float = 0.0
    end_ms: float = 0.0
    status: int = 0
    text: str = ""


def body_of(number: int, dice: random.Random) -> tuple[str, dict]:
    """Most prompts are new, some begin with one of four known ones; some ask for too much."""
    known, length = dice.randrange(4), dice.randrange(20, 200)
    tokens = [dice.randrange(3, 250) for _ in range(length)]
    kind = "new"
    if number % 3 == 0:
        tokens, kind = [3 + known] * 96 + tokens[:8], "cached"
    if number % 41 == 0:
        tokens, kind = tokens * 40, "too_long"
    elif number % 7 == 0:
        kind = "cancelled"
    num_tokens = 120 if kind == "cancelled" else 4
    body = {"prompt": tokens, "max_tokens": num_tokens, "temperature": 0.0, "ignore_eos": True}
    return kind, body


async def ask(client: httpx.AsyncClient, kind: str, body: dict) -> Measured:
    seen = Measured(kind=kind)
    start = time.perf_counter()

    def elapsed_ms() -> float:
        return (time.perf_counter() - start) * 1e3

    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        seen.status = response.status_code
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if "error" in line[:12]:
                seen.text = line
                break
            if not seen.first_ms:
                seen.first_ms = elapsed_ms()
                if kind == "cancelled":
                    break
    seen.end_ms = elapsed_ms()
    return seen


async def drive(served: Served) -> dict[str, Measured]:
    """All requests through a few connections; a worker of each role dies on the way."""
    dice, measured = random.Random(_SEED), {}
    todo = list(enumerate([body_of(number, dice) for number in range(NUM_REQUESTS)]))
    todo.reverse()

    async def stream() -> None:
        while todo:
            number, (kind, body) = todo.pop()
            if number == NUM_REQUESTS // 3:
                served.deployment.supervisor.kill("prefill-0")
            elif number == 2 * NUM_REQUESTS // 3:
                served.deployment.supervisor.kill("decode-2")
            headers = {"x-request-id": f"n{number}"}
            client = httpx.AsyncClient(
                base_url=served.client.base_url, timeout=60, trust_env=False, headers=headers
            )
            async with client:
                await client.get("/health")  # the connection is there, as a client's would be
                measured[f"n{number}"] = await ask(client, kind, body)

    await asyncio.gather(*(stream() for _ in range(NUM_AT_ONCE)))
    return measured


async def traced(folder: Path) -> dict[str, Measured]:
    settings = ["model.name=tiny", "gateway.port=0", "cluster.prefill=2", "cluster.decode=2"]
    settings += ["cluster.pin_cores=false", "worker.kv_nbytes=2097152"]
    config = load_config(None, settings)
    async with (
        deploy(config, lambda *_: None, trace_dir=folder) as deployment,
        open_front(config, deployment) as front,
    ):
        await deployment.wait_ready(START_S)
        served = Served(deployment, (front.host, front.port))
        try:
            measured = await drive(served)
            assert await served.until_idle(20.0) == []
        finally:
            await served.client.aclose()
    return measured


def off_ms(story: Story, seen: Measured) -> float:
    """How far the sum of phases is from the client's own time."""
    assert story.tiling is not None
    wanted = seen.first_ms if story.tiling.is_answered else seen.end_ms
    return abs(story.tiling.total_us / 1e3 - wanted)


@pytest.mark.slow
async def test_phases_of_real_requests_add_up_to_what_clients_measured(tmp_path):
    measured = await traced(tmp_path)
    told = read_source(str(tmp_path))
    assert [str(one) for one in told.violations] == []
    stories = {one.client_request_id: one for one in told.stories}
    kinds = Counter(one.kind for one in measured.values())
    assert len(measured) == NUM_REQUESTS and min(kinds.values()) >= 10

    refused = {name for name, seen in measured.items() if seen.status == 400}
    assert set(stories) == set(measured) - refused, "who is no request never reached the router"
    modes = Counter(one.mode for one in stories.values())
    assert modes["disaggregated"] > 300 and sum(bool(one.failures) for one in stories.values())
    assert sum(one.state == "cancelled" for one in stories.values()) >= 10
    assert sum(one.cached_tokens > 0 for one in stories.values()) > 50

    off = sorted(off_ms(stories[name], measured[name]) for name in stories)
    assert len(off) >= 500
    assert off[-1] <= SLACK_MS and off[len(off) // 2] <= MEDIAN_MS, off[-5:]
    for story in stories.values():
        spans = story.tiling.spans()
        assert all(a[2] == b[1] for a, b in pairwise(spans)), "no gap"
        assert sum(until - start for _, start, until in spans) == story.tiling.total_us
    retried = [one for one in stories.values() if one.failures and one.ttft_us]
    assert any(one.tiling.of(Phase.RETRY) for one in retried)
