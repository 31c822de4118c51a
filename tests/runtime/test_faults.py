"""Killed and frozen workers: streams go on to the exact tokens, and the worker comes back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from real_deployment import Answer, Served, serving

from baton.protocol.request import RequestState

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

RESTART_S = 25.0
IDLE_S = 5.0
WORKER_TIMEOUT_MS = 1000
PREFILL, DECODE = "prefill-0", "decode-1"
STREAM: dict[str, Any] = {"prompt": list(range(20, 120)), "max_tokens": 400}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    overrides = (f"router.worker_timeout_ms={WORKER_TIMEOUT_MS}", "worker.max_batch_tokens=32")
    async with serving(*overrides) as served:
        yield served


def long_prompt(number: int) -> dict[str, Any]:
    return {"prompt": [(number * 31 + i * 7) % 250 for i in range(1200)], "max_tokens": 8}


async def read(served: Served, bodies: list[dict[str, Any]], salt: str) -> list[Answer]:
    """Stream all bodies at once under a salt of their own, so that none finds a warm prefix."""
    return list(
        await asyncio.gather(*(served.stream({**body, "cache_salt": salt}) for body in bodies))
    )


async def until_text(progress: list[str], count: int) -> None:
    """Wait until a stream has delivered so many pieces."""
    async with asyncio.timeout(20):
        while len(progress) < count:
            await asyncio.sleep(0.005)


async def check_nothing_is_left(served: Served) -> None:
    """Nothing is held, every worker has its one segment, and an answer is as ever."""
    probe = {"prompt": [9] * 50, "max_tokens": 5}
    answer = await served.stream(probe)
    assert answer.finish_reason == "length" and not answer.error
    assert await served.until_idle(IDLE_S) == []
    counts = served.footprint()
    assert [counts[f"{worker} segments"] for worker in (PREFILL, DECODE)] == [1, 1]


async def test_prefill_worker_killed_in_the_middle(served: Served) -> None:
    bodies = [long_prompt(number) for number in range(6)]
    references = await read(served, bodies, "calm")
    assert all(answer.finish_reason == "length" for answer in references)
    node, epoch = served.deployment.router.node, served.view(PREFILL).info.epoch
    fallbacks = node.counters["fallback_recompute"]
    reading = asyncio.create_task(read(served, bodies, "killed"))
    async with asyncio.timeout(20):
        while not any(r.state is RequestState.PREFILLING for r in node.records.values()):
            await asyncio.sleep(0.005)
    os.kill(served.view(PREFILL).info.pid, signal.SIGKILL)
    assert await asyncio.wait_for(reading, RESTART_S) == references
    assert node.counters["fallback_recompute"] > fallbacks
    await served.until_replaced(PREFILL, epoch, RESTART_S)
    assert served.view(PREFILL).info.epoch == epoch + 1
    await check_nothing_is_left(served)


async def test_decode_worker_killed_in_the_middle_of_a_stream(served: Served) -> None:
    await check_a_stream_survives(served, signal.SIGKILL)


async def test_a_frozen_worker_is_killed_and_replaced(served: Served) -> None:
    await check_a_stream_survives(served, signal.SIGSTOP)


async def check_a_stream_survives(served: Served, number: signal.Signals) -> None:
    """Stop the decode worker while a client reads: it reads on, token for token."""
    (reference,) = await read(served, [STREAM], f"calm {number.name}")
    assert len(reference.tokens) == STREAM["max_tokens"]
    victim = served.view(DECODE).info
    progress: list[str] = []
    body = {**STREAM, "cache_salt": number.name}
    reading = asyncio.create_task(served.stream(body, progress))
    await until_text(progress, 20)
    os.kill(victim.pid, number)
    seen = len(progress)
    assert seen < STREAM["max_tokens"], "the stream was over before the worker was stopped"
    async with asyncio.timeout(RESTART_S):
        while await served.ready_status() != 503:
            await asyncio.sleep(0.02)
    refused = await served.stream(STREAM)
    assert "not_ready" in refused.error and not refused.text
    await served.until_replaced(DECODE, victim.epoch, RESTART_S)
    assert served.view(DECODE).info.epoch == victim.epoch + 1
    assert not os.path.exists(f"/proc/{victim.pid}"), "the old process is still there"
    assert await asyncio.wait_for(reading, RESTART_S) == reference
    await check_nothing_is_left(served)
