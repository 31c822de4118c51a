"""A drained worker gets nothing new, keeps its streams until the deadline, and then goes."""

import asyncio

import pytest
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


async def test_nobody_is_drained_where_it_is_not_allowed():
    async with serving("cluster.decode=2", "cluster.pin_cores=false") as served:
        refused = await drain(served, "decode-1", 1)
        assert refused.status_code == 403 and "gateway.allow_drain" in refused.text
