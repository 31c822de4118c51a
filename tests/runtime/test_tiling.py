"""Phases of real requests add up to what their clients measured, whatever happens to them.

Tolerance: client and gateway are tasks of one event loop, so that the client's time has, beyond the
phases, the way through the loopback socket and the lag of that loop: before the gateway reads the
request, before the client's transport reads the first token, and before its task goes on. The lag
is measured while the requests run; of a hundred requests 99 may be off by SLACK_MS and three times
the longest lag of their time, the others by ten times (a connection that waits to be accepted, a
turn in which many tasks go on), the median of all by MEDIAN_MS and three times the median of those.
"""

import asyncio
import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import aiohttp
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
SLACK_MS, MEDIAN_MS = 20.0, 5.0
_LAG_PERIOD_S, _HOPS, _MOST_HOPS = 0.002, 3, 10
_SEED = 7


class Measured(msgspec.Struct, kw_only=True):
    """What a client saw of one request; times are of its own clock."""

    kind: str
    start: float = 0.0
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


class LoopLag:
    """Samples how much later than asked this loop wakes a task up."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_LAG_PERIOD_S)
            now = time.perf_counter()
            self.samples.append((now, (now - before - _LAG_PERIOD_S) * 1e3))

    def longest_ms(self, start: float, end: float) -> float:
        """The longest lag that touches an interval."""
        mine = [lag for at, lag in self.samples if at >= start and at - lag / 1e3 <= end + 0.05]
        return max(mine, default=0.0)


async def ask(session: aiohttp.ClientSession, name: str, kind: str, body: dict) -> Measured:
    start = time.perf_counter()
    seen = Measured(kind=kind, start=start)

    def elapsed_ms() -> float:
        return (time.perf_counter() - start) * 1e3

    call = session.post(
        "/v1/completions", json={**body, "stream": True}, headers={"x-request-id": name}
    )
    async with call as response:
        seen.status = response.status
        async for raw in response.content:
            line = raw.decode()
            if not line.startswith("data: {"):
                continue
            if "error" in line[:12]:
                seen.text = line
                break
            if not seen.first_ms:
                seen.first_ms = elapsed_ms()
                if kind == "cancelled":
                    response.close()
                    break
    seen.end_ms = elapsed_ms()
    return seen


async def drive(served: Served, session: aiohttp.ClientSession) -> dict[str, Measured]:
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
            name = f"n{number}"
            measured[name] = await ask(session, name, kind, body)

    await asyncio.gather(*(stream() for _ in range(NUM_AT_ONCE)))
    return measured


async def traced(folder: Path, lag: LoopLag) -> dict[str, Measured]:
    settings = ["model.name=tiny", "gateway.port=0", "cluster.prefill=2", "cluster.decode=2"]
    settings += ["cluster.pin_cores=false", "worker.kv_nbytes=2097152"]
    config = load_config(None, settings)
    async with (
        deploy(config, lambda *_: None, trace_dir=folder) as deployment,
        open_front(config, deployment) as front,
    ):
        await deployment.wait_ready(START_S)
        served = Served(deployment, (front.host, front.port))
        url = "http://{}:{}".format(*served.address)
        watching = asyncio.create_task(lag.watch())
        try:
            async with aiohttp.ClientSession(url) as session:
                measured = await drive(served, session)
            assert await served.until_idle(20.0) == []
        finally:
            watching.cancel()
            await served.client.aclose()
    return measured


def off_ms(story: Story, seen: Measured) -> float:
    """How far the sum of phases is from the client's own time."""
    assert story.tiling is not None
    wanted = seen.first_ms if story.tiling.is_answered else seen.end_ms
    return abs(story.tiling.total_us / 1e3 - wanted)


def lag_of(lag: LoopLag, seen: Measured) -> float:
    """The longest lag in the time of one request."""
    return lag.longest_ms(seen.start, seen.start + max(seen.first_ms, seen.end_ms) / 1e3)


@pytest.mark.slow
async def test_phases_of_real_requests_add_up_to_what_clients_measured(tmp_path):
    lag = LoopLag()
    measured = await traced(tmp_path, lag)
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

    off = {name: off_ms(story, measured[name]) for name, story in stories.items()}
    lags = {name: lag_of(lag, measured[name]) for name in stories}
    assert len(off) >= 500
    late = {n: (off[n], lags[n]) for n in off if off[n] > SLACK_MS + _HOPS * lags[n]}
    assert len(late) <= len(off) // 100, late
    assert all(by <= SLACK_MS + _MOST_HOPS * lags[name] for name, (by, _) in late.items()), late
    assert median(off.values()) <= MEDIAN_MS + _HOPS * median(lags.values())
    print(
        f"off: median {median(off.values()):.2f} ms, longest {max(off.values()):.1f} ms; "
        f"lag: median {median(lags.values()):.2f} ms, longest {max(lags.values()):.1f} ms"
    )
    for story in stories.values():
        spans = story.tiling.spans()
        assert all(a[2] == b[1] for a, b in pairwise(spans)), "no gap"
        assert sum(until - start for _, start, until in spans) == story.tiling.total_us
    moved = [one for one in stories.values() if one.mode == "disaggregated" and one.ttft_us]
    timed = [
        one for one in moved if one.tiling.of(Phase.PUBLISH) and one.tiling.of(Phase.ADMISSION)
    ]
    assert len(timed) > len(moved) // 2, "each has a time of its own"
    retried = [one for one in stories.values() if one.failures and one.ttft_us]
    assert any(one.tiling.of(Phase.RETRY) for one in retried)
