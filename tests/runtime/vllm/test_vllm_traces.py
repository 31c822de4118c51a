"""The gateway in front of vLLM servers says where the time of each request went."""

import asyncio
import json
import time

import aiohttp
import pytest
from tests.runtime.vllm.front import BODY, ask, get, pair, until

from baton.telemetry.live.history import SETTLE_US
from baton.telemetry.trace.command import read_source
from baton.telemetry.trace.phases import PHASES, Phase

STREAM = {**BODY, "stream": True}
TOLERANCE_US = 50_000
"""Client, gateway and servers are tasks of one event loop, on a machine that may be laden."""


def settled(front):
    """Everybody who has ended, without the second that workers' last words may take."""
    live = front.backend.tracer.live
    live.history.settle(time.monotonic_ns() // 1000 + SETTLE_US + 1)
    return live.history.last(1000)


async def told(front, num):
    await until(lambda: len(settled(front)) >= num)
    return settled(front)


async def first_ms(front, body, headers=None):
    """A streamed request, and when its client had the first event."""
    async with aiohttp.ClientSession() as session:
        began = time.perf_counter()
        async with session.post(front.url + "/v1/completions", json=body, headers=headers) as got:
            await got.content.readuntil(b"\n\n")
            passed = time.perf_counter() - began
            await got.read()
            return passed * 1e6, got.headers


async def test_phases_add_up_to_what_the_client_measured():
    async with pair(step_s=0.01) as (front, _, _):
        measured = [(await first_ms(front, STREAM))[0] for _ in range(5)]
        stories = (await told(front, 5))[::-1]
        for story, passed_us in zip(stories, measured, strict=True):
            tiling = story.tiling
            assert sum(tiling.durations_us) == story.ttft_us
            assert abs(story.ttft_us - passed_us) < TOLERANCE_US
            assert tiling.of(Phase.DECODE_LEG) >= 10_000 and tiling.of(Phase.PREFILL_LEG) > 0
            assert tiling.of(Phase.QUEUE) == tiling.of(Phase.TRANSFER) == 0, "nobody saw these"
            assert story.num_output_tokens == BODY["max_tokens"]
            assert story.num_tokens == len(BODY["prompt"]) and story.cached_tokens == 32
            assert story.tpot_us >= 9_000


async def test_the_trace_of_a_running_gateway_keeps_the_contract(tmp_path):
    async with pair() as (front, (prefill,), (decode,)):
        await ask(front, STREAM)
        await ask(front, BODY)
        prefill.fault = "500"
        await ask(front, STREAM)
        prefill.fault, decode.fault = "", "cut"
        await ask(front, STREAM)
        decode.fault = "400"
        await ask(front, STREAM)
        await told(front, 5)
        (tmp_path / "t.jsonl").write_bytes((await get(front, "/traces")).raw)
        read = await asyncio.to_thread(read_source, f"{front.url}")
        again = read_source(str(tmp_path / "t.jsonl"))
        assert read.violations == () == again.violations
        plain, whole, recomputed, cut, invalid = again.stories
        assert plain.mode == "disaggregated" and plain.ttft_us
        assert whole.is_whole and whole.num_output_tokens == BODY["max_tokens"]
        assert recomputed.mode == "recomputed" and recomputed.tiling.of(Phase.RETRY) > 0
        assert recomputed.failures == ("prefill_status_500, then recompute",)
        assert cut.state == "failed" and cut.failures == ("decode_cut, then fail",)
        assert invalid.state == "invalid"
        assert {len(one.tiling.durations_us) for one in again.stories} == {len(PHASES)}


async def test_a_client_that_leaves_and_one_that_is_refused_have_an_end():
    async with pair("router.max_pending_tokens=40", step_s=0.05) as (front, (prefill,), _):
        prefill.fault = "hang"
        async with aiohttp.ClientSession() as session:
            timeout = aiohttp.ClientTimeout(total=0.3)
            asking = session.post(front.url + "/v1/completions", json=STREAM, timeout=timeout)
            with pytest.raises(asyncio.TimeoutError):
                await asking
        front.backend.servers["prefill-0"].pending_tokens += 100
        got = await ask(front, STREAM)
        assert got.status == 429 and "traceparent" in got.headers
        refused, left = await told(front, 2)
        assert (left.state, left.reason) == ("cancelled", "disconnect")
        assert left.tiling.of(Phase.PREFILL_LEG) > 200_000
        assert refused.state == "rejected" and front.backend.num_open == 0
        page = (await get(front, "/metrics")).raw.decode()
        assert 'baton_rejections_total{code="queue_full"} 1' in page


async def test_both_legs_carry_the_clients_trace():
    header = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "vendor=1"}
    async with pair() as (front, (prefill,), (decode,)):
        _, headers = await first_ms(front, STREAM, header)
        assert headers["traceparent"].startswith(f"00-{'ab' * 16}-")
        seen = [server.requests[0][2] for server in (prefill, decode)]
        parents = {one["traceparent"] for one in seen} | {headers["traceparent"]}
        assert len(parents) == 3, "a span each"
        assert all(one.startswith(f"00-{'ab' * 16}-") for one in parents)
        assert {one["tracestate"] for one in seen} == {"vendor=1"}
        (story,) = await told(front, 1)
        assert story.trace_id == "ab" * 16
        await ask(front, STREAM)
        assert decode.requests[1][2]["traceparent"][3:35] != "ab" * 16


async def test_the_page_shows_servers_requests_and_one_of_them():
    async with pair("router.ttft_slo_ms=5000") as (front, _, _):
        await ask(front, STREAM)
        (story,) = await told(front, 1)
        assert b"<!doctype html>" in (await get(front, "/dashboard")).raw
        feed = (await get(front, "/dashboard/feed")).json
        assert [card["worker_id"] for card in feed["workers"]] == ["prefill-0", "decode-0"]
        assert feed["workers"][0]["blocks"] == {"used": 25, "free": 75}
        assert feed["requests"][0]["sentence"].startswith("first token after")
        assert feed["attainment"]["prompt<=128 output<=32"]["joint"] == 1.0
        detail = (await get(front, f"/dashboard/request?id={story.request_id}")).json
        assert "decode_answered" in [one[2] for one in detail["events"]]
        assert (await get(front, "/dashboard/request?id=nobody")).status == 404


async def test_outputs_of_one_request_are_traced_each():
    async with pair() as (front, _, (decode,)):
        decode.fault, decode.fault_leg = "500", "decode"
        await ask(front, {**BODY, "n": 2})
        stories = await told(front, 2)
        assert {one.request_id[-2:] for one in stories} == {"-0", "-1"}
        assert {one.state for one in stories} <= {"failed", "cancelled"}
        assert front.backend.num_open == 0


async def test_a_trace_file_and_live_telemetry_that_is_off(tmp_path):
    async with pair("telemetry.live=false") as (front, (prefill,), _):
        await ask(front, STREAM)
        assert (await get(front, "/traces")).raw == b""
        assert json.loads((await get(front, "/dashboard/feed")).raw)["requests"] == []
        assert "traceparent" not in prefill.requests[0][2]
