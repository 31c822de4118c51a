"""A drained worker gets nothing new, keeps its streams until the deadline, and then goes."""

import asyncio
import os
import signal

import pytest
from tests.runtime.pipeline.test_stage_deaths import is_alive, stages_of
from tests.runtime.real_deployment import serving

pytestmark = pytest.mark.slow
BODY = {"model": "tiny", "prompt": "a long way to the sea", "max_tokens": 60}


async def drain(served, worker: str, timeout_s: float):
    order = {"worker": worker, "timeout_s": timeout_s}
    return await served.client.post("/workers/drain", json=order)


async def until_gone(served, worker: str) -> None:
    async with asyncio.timeout(60):
        while served.deployment.router.node.fleet.get(worker) is not None:
            await asyncio.sleep(0.05)


async def test_drains_wait_for_streams_refuse_the_last_and_hand_over_at_the_deadline():
    async with serving(
        "cluster.decode=3", "gateway.allow_drain=true", "cluster.pin_cores=false"
    ) as served:
        expected = await served.stream(BODY)
        assert (await drain(served, "decode-7", 1)).status_code == 404
        refused = await drain(served, "prefill-0", 1)
        assert refused.status_code == 409
        assert "last prefill worker" in refused.json()["error"]["message"]

        # Idle, it goes at once, its slot with it, and the others serve.
        assert (await drain(served, "decode-1", 30)).status_code == 202
        await until_gone(served, "decode-1")
        assert [one.worker_id for one in served.deployment.supervisor.workers] == [
            "prefill-0",
            "decode-2",
            "decode-3",
        ]
        assert await served.stream(BODY) == expected

        # Busy, at a deadline of nothing: its streams go on elsewhere with the same tokens.
        long = {**BODY, "max_tokens": 400}
        whole = await served.stream(long)
        progress: list[list[str]] = [[], []]
        streams = [asyncio.create_task(served.stream(long, one)) for one in progress]
        async with asyncio.timeout(60):
            while not all(progress):
                await asyncio.sleep(0.01)
        assert served.view("decode-2").load().active_requests
        assert (await drain(served, "decode-2", 0)).status_code == 202
        assert [await one for one in streams] == [whole, whole]
        await until_gone(served, "decode-2")
        last = await drain(served, "decode-3", 1)
        assert last.status_code == 409 and "last decode worker" in last.text
        assert await served.until_idle(20) == []


async def until_idle_without(served, expected) -> None:
    assert await served.stream(BODY) == expected
    assert await served.until_idle(20) == []


async def test_a_worker_that_is_down_is_removed_and_does_not_come_back():
    async with serving(
        "cluster.decode=2", "gateway.allow_drain=true", "cluster.pin_cores=false"
    ) as served:
        expected = await served.stream(BODY)
        doomed = served.view("decode-2").info
        os.kill(doomed.pid, signal.SIGKILL)
        await until_gone(served, "decode-2")
        refused = await drain(served, "decode-3", 1)
        assert refused.status_code == 404
        assert (await drain(served, "decode-2", 30)).status_code == 202
        async with asyncio.timeout(30):
            while len(served.deployment.supervisor.workers) > 2:
                await asyncio.sleep(0.05)
        await asyncio.sleep(3)  # its next life would have begun long ago
        assert served.deployment.router.node.fleet.get("decode-2") is None
        assert (await drain(served, "decode-2", 1)).status_code == 404
        await until_idle_without(served, expected)


async def test_a_busy_pipeline_ends_whole_and_a_worker_that_was_given_up_too():
    """The first is unknown to the router, though its process runs; the others end with theirs."""
    async with serving(
        "cluster.prefill=2",
        "cluster.decode=2",
        "cluster.decode_pp=2",
        "gateway.allow_drain=true",
        "cluster.pin_cores=false",
    ) as served:
        expected = await served.stream({**BODY, "max_tokens": 300})
        stages = stages_of(served.view("decode-2").info.pid)
        assert len(stages) == 2
        progress: list[str] = []
        streams = [
            asyncio.create_task(served.stream({**BODY, "max_tokens": 300}, one))
            for one in (progress, [])
        ]
        async with asyncio.timeout(60):
            while not progress:
                await asyncio.sleep(0.01)
        assert (await drain(served, "decode-2", 0)).status_code == 202
        assert [await one for one in streams] == [expected, expected]
        await until_gone(served, "decode-2")

        given_up = served.view("prefill-0").info
        served.deployment.router.worker_lost("prefill-0", given_up.epoch, False)
        assert (await drain(served, "prefill-0", 30)).status_code == 202
        async with asyncio.timeout(30):
            while served.deployment.supervisor.role_of("prefill-0") is not None:
                await asyncio.sleep(0.05)
            while any(map(is_alive, [given_up.pid, *stages])):
                await asyncio.sleep(0.05)
        last = await drain(served, "prefill-1", 1)
        assert last.status_code == 409 and "last prefill worker" in last.text
        await until_idle_without(served, await served.stream(BODY))


async def test_nobody_is_drained_where_it_is_not_allowed():
    async with serving("cluster.decode=2", "cluster.pin_cores=false") as served:
        refused = await drain(served, "decode-1", 1)
        assert refused.status_code == 403 and "gateway.allow_drain" in refused.text
