"""Two hundred requests given up at random moments leave nothing behind, pushed or pulled."""

import asyncio
import random

import msgspec
import pytest
from real_deployment import Served, serving

pytestmark = pytest.mark.slow

NUM_REQUESTS = 200
CONCURRENCY = 16
IDLE_S = 5.0
ABORTS = (("prefill-0", "source_aborts"), ("decode-1", "aborts"))
PROBE = {"prompt": list(range(10, 90)), "max_tokens": 24}


async def give_up(served: Served, chance: random.Random) -> str:
    """Send one request and drop the connection at some moment; says how far it came."""
    length = chance.choice([1, 15, 16, 40, 300, 900, 1500])
    shared = [7] * (length // 2 if chance.random() < 0.3 else 0)
    body = {
        "prompt": shared + [chance.randrange(250) for _ in range(length - len(shared))],
        "max_tokens": chance.choice([1, 30, 300]),
        "stream": chance.random() < 0.8,
        "ignore_eos": True,
        "n": chance.choice([1, 1, 1, 3]),
        "seed": chance.randrange(1000),
    }
    moment = chance.choice(["at once", "soon", "first byte", "mid stream"])
    delay_s = chance.uniform(0, 0.15)
    reader, writer = await asyncio.open_connection(*served.address)
    data = msgspec.json.encode(body)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(data)}\r\n\r\n"
    got = b""
    try:
        writer.write(head.encode() + data)
        await writer.drain()
        if moment == "soon":
            await asyncio.sleep(delay_s)
        elif moment != "at once":
            got = await reader.read(1)
        if moment == "mid stream" and got:
            await asyncio.sleep(delay_s)
            got += await reader.read(1 << 16)
    finally:
        writer.transport.abort()
    return moment if moment in ("at once", "soon") or got else "refused"


@pytest.mark.parametrize("direction", ["push", "pull"])
async def test_a_cancel_storm_leaves_nothing(direction: str) -> None:
    # A narrow window makes transfers long, so that many are given up in the middle of one.
    overrides = (
        f'transfer.direction="{direction}"',
        "transfer.chunk_nbytes=8192",
        "transfer.credit_nbytes=20480",
        "worker.max_batch_tokens=128",
    )
    async with serving(*overrides) as served:
        reference = await served.stream(PROBE)
        assert reference.finish_reason == "length" and len(reference.tokens) == 24
        assert await served.until_idle(IDLE_S) == []
        before = served.footprint()
        await storm(served, random.Random(f"storm {direction}"))
        assert await served.until_idle(IDLE_S) == []
        counters = served.deployment.router.node.counters
        assert counters["cancelled"] > NUM_REQUESTS // 4, counters
        aborts = {name: served.counter(worker, name) for worker, name in ABORTS}
        assert min(aborts.values()) > NUM_REQUESTS // 10, aborts
        assert counters["workers_lost"] == counters["failed"] == 0, counters
        assert await served.stream({**PROBE, "cache_salt": "cold"}) == reference
        assert await served.stream(PROBE) == reference
        assert await served.until_idle(IDLE_S) == []
        assert await served.until_footprint(before, IDLE_S) == before


async def storm(served: Served, chance: random.Random) -> None:
    """Give up all requests, some at a time."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(seed: int) -> str:
        async with slots:
            return await give_up(served, random.Random(seed))

    seeds = [chance.randrange(1 << 30) for _ in range(NUM_REQUESTS)]
    moments = await asyncio.gather(*map(one, seeds))
    assert {"at once", "soon", "first byte", "mid stream"} <= set(moments)
    assert moments.count("refused") == 0
