"""What follows when a leg fails, hangs or is left: fallbacks, cancellation, handles given back."""

import asyncio

import aiohttp
import pytest
from tests.runtime.vllm.faulty_vllm import expected_text, start
from tests.runtime.vllm.front import BODY, ask, get, pair, until

STREAM = {**BODY, "stream": True}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("500", "prefill_status_500"),
        ("hang", "prefill_timeout"),
        ("no_handle", "prefill_no_handle"),
        ("429", "prefill_status_429"),
    ],
)
async def test_a_prompt_that_nobody_prefills_is_computed_where_it_decodes(fault, reason):
    async with pair() as (front, (prefill,), _):
        prefill.fault = fault
        got = await ask(front, STREAM)
        assert got.is_done and got.text() == expected_text(BODY)
        assert got.headers["x-baton-mode"] == "recomputed"
        assert got.headers["x-baton-reason"] == reason
        await until(lambda: prefill.running == 0)


async def test_another_prefill_server_is_tried_first():
    async with pair(prefills=2) as (front, prefills, _):
        prefills[0].fault = "500"
        modes = {(await ask(front, STREAM)).headers["x-baton-mode"] for _ in range(3)}
        assert modes == {"disaggregated"}


@pytest.mark.parametrize("fault", ["500", "error_first"])
async def test_a_decode_that_fails_before_its_first_byte_moves_to_another(fault):
    async with pair(decodes=2) as (front, (prefill,), decodes):
        for bad, good in (decodes, decodes[::-1]):
            bad.fault, good.fault = fault, ""
            got = await ask(front, STREAM)
            assert got.is_done and got.text() == expected_text(BODY)
            assert got.headers["x-baton-mode"] == "disaggregated"
        assert "given" not in prefill.handles.values()


async def test_the_only_decode_server_computes_the_prompt_after_its_load_failed():
    async with pair() as (front, (prefill,), (decode,)):
        decode.fault = "load"
        got = await ask(front, STREAM)
        assert got.is_done and got.headers["x-baton-mode"] == "recomputed"
        assert got.headers["x-baton-reason"] == "decode_status_500"
        await until(lambda: "given" not in prefill.handles.values())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_decode_server_that_breaks_off_leaves_the_prompt_to_whoever_lives(stream):
    """A broken connection tells of a death before the next look at its health does."""
    async with pair() as (front, _, (decode,)):
        decode.fault = "reset"
        got = await ask(front, {**BODY, "stream": stream})
        text = got.text() if stream else got.json["choices"][0]["text"]
        assert got.status == 200 and text == expected_text(BODY)
        assert got.headers["x-baton-mode"] == "recomputed"
        assert got.headers["x-baton-reason"] == "decode_cut"
        assert got.headers["x-baton-decode-worker"] == "prefill-0"
        assert len(decode.requests) == 1


async def test_attempts_end_with_a_typed_error():
    async with pair() as (front, (prefill,), (decode,)):
        decode.fault = "500"
        got = await ask(front, BODY)
        assert got.status == 502 and got.json["error"]["code"] == "decode_failed"
        assert int(got.headers["retry-after"]) >= 1
        assert len(decode.requests) == 3
        await until(lambda: "given" not in prefill.handles.values())


@pytest.mark.parametrize("fault", ["cut", "error_late", "stall"])
async def test_a_stream_that_breaks_ends_with_an_error_and_never_with_done(fault):
    async with pair(decodes=2) as (front, _, decodes):
        for decode in decodes:
            decode.fault = fault
        got = await ask(front, STREAM)
        assert got.status == 200 and not got.is_done
        assert '"error"' in got.events[-1] and "[DONE]" not in got.raw.decode()
        assert len(got.events) == 4
        assert sum(len(decode.requests) for decode in decodes) == 1


async def test_a_stream_that_ends_without_its_last_word_is_not_whole():
    async with pair() as (front, _, (decode,)):
        decode.fault = "no_done"
        got = await ask(front, STREAM)
        assert got.text() == expected_text(BODY)  # all of it came, and nobody can know that
        assert '"error"' in got.events[-1] and "[DONE]" not in got.raw.decode()


async def test_a_client_that_leaves_during_the_prefill_ends_it():
    async with pair("router.attempt_timeout_ms=30000") as (front, (prefill,), (decode,)):
        prefill.fault = "hang"
        await leave(front, lambda: prefill.running == 1)
        await until(lambda: prefill.aborted == 1)
        assert not decode.requests
        await until(lambda: sum(s.pending_tokens for s in front.backend.servers) == 0)


async def test_a_client_that_leaves_before_decode_has_read_gives_the_handle_back():
    async with pair("router.attempt_timeout_ms=30000") as (front, (prefill,), (decode,)):
        decode.fault, decode.fault_leg = "hang", "decode"
        await leave(front, lambda: decode.running == 1)
        await until(lambda: decode.aborted == 1)
        await until(lambda: list(prefill.handles.values())[-1] == "given back")
        page = (await get(front, "/metrics")).raw.decode()
        assert 'baton_vllm_releases_total{outcome="released"} 1.0' in page


async def test_a_client_that_leaves_a_stream_ends_it():
    async with pair(step_s=0.02) as (front, _, (decode,)):
        body = {**STREAM, "max_tokens": 500}
        await leave(front, lambda: decode.running == 1, body, wait_s=0.2)
        await until(lambda: decode.aborted == 1)
        await until(lambda: all(server.active == 0 for server in front.backend.servers))


async def leave(front, condition, body=STREAM, wait_s=0.0):
    async def sends():
        async with (
            aiohttp.ClientSession() as session,
            session.post(front.url + "/v1/completions", json=body) as response,
        ):
            await response.read()

    sending = asyncio.create_task(sends())
    await until(condition)
    await asyncio.sleep(wait_s)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


async def test_one_failed_output_of_several_ends_the_others():
    async with pair(step_s=0.02) as (front, _, (decode,)):
        decode.fault = "cut"
        got = await ask(front, {**STREAM, "n": 3, "max_tokens": 400})
        assert not got.is_done and '"error"' in got.events[-1]
        await until(lambda: decode.running == 0)


async def test_servers_die_and_come_back():
    async with pair("vllm.silence_ms=2000") as (front, _, (decode,)):
        servers = front.backend.servers
        servers["decode-0"].fall("as ordered")
        got = await ask(front, BODY)
        assert got.status == 200  # whoever is left serves it
        await until(lambda: servers["decode-0"].is_up)
        assert servers["decode-0"].epoch == 1  # the process is the same one
        decode.started += 100
        await until(lambda: servers["decode-0"].epoch == 2)
        await until(lambda: not servers.unproven())
        got = await ask(front, BODY)
        assert got.headers["x-baton-mode"] == "disaggregated"


async def test_a_dead_decode_server_leaves_its_work_to_the_others():
    async with pair() as (front, (prefill,), (decode,)):
        await decode.runner.cleanup()
        got = await ask(front, BODY)
        assert got.json["choices"][0]["text"] == expected_text(BODY)
        assert got.headers["x-baton-decode-worker"] == "prefill-0"
        await prefill.runner.cleanup()
        got = await ask(front, BODY)
        assert got.status in (502, 503) and int(got.headers["retry-after"]) >= 1
        await until(lambda: not any(server.is_up for server in front.backend.servers))
        assert (await ask(front, BODY)).status == 503
        assert (await get(front, "/health")).status == 503
        decode.started += 100
        await start(decode)
        await until(lambda: front.backend.servers["decode-0"].epoch == 2)
        assert (await ask(front, BODY)).headers["x-baton-reason"] == "no_prefill_server"


async def test_full_queues_refuse_with_a_time_to_come_back():
    async with pair("router.max_pending_tokens=1", "router.attempt_timeout_ms=30000") as (
        front,
        (prefill,),
        _,
    ):
        prefill.fault = "hang"
        first = asyncio.create_task(ask(front, BODY))
        await until(lambda: prefill.running == 1)
        got = await ask(front, BODY)
        assert got.status == 429 and got.json["error"]["code"] == "queue_full"
        assert int(got.headers["retry-after"]) >= 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
