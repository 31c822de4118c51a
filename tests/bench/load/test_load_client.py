"""The client against a server that streams what it is told: outcomes, times, schedule."""

import asyncio
import time

import msgspec
import pytest
from scripted_server import DONE, HEAD, delta, event, scripted, text, usage, words

from baton.bench.load import Abilities, Endpoint, LoadOptions, Target, lateness, run_load
from baton.bench.load.client import INTERRUPTED, reason_of
from baton.errors import ConfigError
from baton.goodput.record import Outcome
from baton.workload.request import Workload, WorkloadRequest

KNOWN = Abilities(
    model="m",
    vocab_size=256,
    extra_fields=frozenset({"ignore_eos", "seed", "stream_options", "skip_special_tokens"}),
)


def load(*arrivals_ms: float, num_prompt: int = 8, num_output: int = 4) -> Workload:
    requests = tuple(
        WorkloadRequest(
            arrival_us=int(at * 1000), num_prompt_tokens=num_prompt, num_output_tokens=num_output
        )
        for at in arrivals_ms
    )
    return Workload(name="w", source="test", requests=requests)


async def run(server, workload=None, endpoint=Endpoint.COMPLETIONS, stop=None, **options):
    options.setdefault("abilities", KNOWN)
    target = Target(base_url=server.url, model="m", endpoint=endpoint)
    return await run_load(target, workload or load(0), LoadOptions(**options), stop=stop)


def says(*pieces, end=True):
    async def script(connection):
        await connection.raw(HEAD)
        for piece in pieces:
            if isinstance(piece, bytes):
                await connection.say(piece)
            else:
                await asyncio.sleep(piece)
        if end:
            await connection.end()

    return script


async def test_a_whole_stream_gives_a_time_for_each_content_chunk_and_the_usage_counts():
    async with scripted(words(4, gap_s=0.02)) as server:
        [record] = await run(server)
    assert record.outcome is Outcome.COMPLETED
    assert record.num_output_tokens == 4 and len(record.token_times_us) == 4
    assert record.num_prompt_tokens == 8
    assert 15_000 < record.ttft_us < 80_000
    assert all(gap > 10_000 for gap in record.gaps_us)
    assert record.end_us >= record.token_times_us[-1]
    headers, body = server.requests[0]
    assert headers["x-request-id"] == record.request_id
    assert body["stream"] is True and body["temperature"] == 0 and body["max_tokens"] == 4
    assert body["ignore_eos"] is True and body["stream_options"] == {"include_usage": True}
    assert len(body["prompt"]) == 8


async def test_the_role_chunk_is_not_the_first_token():
    pieces = (
        delta(role="assistant", content=""),
        0.1,
        delta(content="a"),
        delta(content="b"),
        delta("length"),
        usage(5, 2),
        DONE,
    )
    async with scripted(says(*pieces)) as server:
        [record] = await run(server, endpoint=Endpoint.CHAT)
    assert record.outcome is Outcome.COMPLETED
    assert record.ttft_us > 95_000
    assert len(record.token_times_us) == 2


async def test_one_chunk_with_several_tokens_is_one_time_and_the_usage_has_the_tokens():
    async with scripted(
        says(text("a b c"), 0.05, text("d", "length"), usage(3, 4), DONE)
    ) as server:
        [record] = await run(server)
    assert len(record.token_times_us) == 2 and record.num_output_tokens == 4
    assert record.tpot_us == pytest.approx(record.gaps_us[0] / 3)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (says(text("", "stop"), usage(8, 0), DONE), "no content"),
        (says(delta(role="assistant"), DONE), "no content"),
        (says(text("a"), text("b")), "stream truncated"),
        (says(text("a"), end=False), "stream truncated"),
        (says(text("a"), event(error={"message": "worker died", "code": "peer"})), "error event"),
        (says(text("a"), event(object="error", message="old form", code=500)), "error event"),
        (says(text("a"), b"data: {nonsense\n\n"), "unreadable chunk"),
    ],
)
async def test_streams_without_a_whole_answer_fail_with_their_reason(script, reason):
    async def closing(connection):
        await script(connection)
        connection.writer.close()

    async with scripted(closing) as server:
        [record] = await run(server)
    assert record.outcome is Outcome.FAILED
    assert reason_of(record) == reason


async def test_a_finish_reason_ends_an_answer_even_without_done():
    async with scripted(says(text("a"), text("b", "stop"))) as server:
        [record] = await run(server)
    assert record.outcome is Outcome.COMPLETED and record.num_output_tokens == 2


async def test_refusals_resets_and_timeouts_are_told_apart():
    async def refuse(connection):
        await connection.answer(429, {"error": {"message": "queue full", "code": "busy"}})

    async def reset(connection):
        connection.reset()

    async def stall(connection):
        await connection.raw(HEAD)
        await connection.say(text("a"))
        await asyncio.sleep(5)

    found = {}
    for name, script in {"refuse": refuse, "reset": reset, "stall": stall}.items():
        async with scripted(script) as server:
            [found[name]] = await run(server, request_timeout_s=0.2)
    assert reason_of(found["refuse"]) == "HTTP 429" and "queue full" in found["refuse"].error
    assert reason_of(found["reset"]) == "connection lost"
    assert reason_of(found["stall"]) == "timeout"
    assert found["stall"].token_times_us, "what had arrived stays in the record"
    target = Target(base_url=server.url, model="m")
    [gone] = await run_load(target, load(0), LoadOptions(abilities=KNOWN))
    assert reason_of(gone) == "connection refused"


@pytest.mark.slow
async def test_requests_go_out_on_time_whatever_is_outstanding():
    async with scripted(words(2, gap_s=0.2)) as server:
        begun = time.monotonic()
        records = await run(server, load(*range(0, 400, 10)))
        took_s = time.monotonic() - begun
    assert all(one.outcome is Outcome.COMPLETED for one in records)
    assert [one.scheduled_us for one in records] == [10_000 * index for index in range(40)]
    assert all(one.sent_us >= one.scheduled_us for one in records)
    assert lateness(records).p50_us < 2_000
    assert took_s < 2.0, "one after the other they would take 16 s"


async def test_with_a_bound_on_concurrency_latency_still_counts_from_the_schedule():
    peak = now = 0

    async def script(connection):
        nonlocal peak, now
        now += 1
        peak = max(peak, now)
        await words(1, gap_s=0.05)(connection)
        now -= 1

    async with scripted(script) as server:
        records = await run(server, load(0, 0, 0, 0), max_concurrency=2)
    assert peak == 2
    assert records[-1].sent_us > 45_000
    assert records[-1].ttft_us > 90_000


async def test_a_share_of_the_requests_is_cancelled_and_the_server_sees_them_leave():
    async with scripted(words(50, gap_s=0.02)) as server:
        records = await run(
            server, load(*[0] * 10), cancellation_rate=0.3, cancellation_delay_s=0.1
        )
        await asyncio.sleep(0.1)
        assert server.num_left >= 3
    assert [one.outcome for one in records].count(Outcome.CANCELLED) == 3
    gone = next(one for one in records if one.outcome is Outcome.CANCELLED)
    assert gone.token_times_us and 95_000 < gone.end_us < 300_000


async def test_a_stop_ends_what_is_outstanding_and_keeps_what_was_measured():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, stop.set)
    async with scripted(words(4, gap_s=0.05)) as server:
        records = await run(server, load(0, 200, 60_000), stop=stop)
    assert [one.outcome for one in records] == [Outcome.COMPLETED, Outcome.CANCELLED]
    assert records[1].error == INTERRUPTED


async def test_equal_seeds_make_equal_requests_and_other_seeds_others():
    async with scripted(words(1)) as server:
        for seed in (1, 1, 2):
            await run(server, load(0, 5), seed=seed)
    bodies = [msgspec.json.encode(body) for _, body in server.requests]
    assert bodies[0:2] == bodies[2:4] and set(bodies[0:2]).isdisjoint(bodies[4:6])
    assert bodies[0] != bodies[1]


async def test_an_empty_workload_is_refused():
    with pytest.raises(ConfigError, match="holds no requests"):
        await run_load(
            Target(base_url="http://127.0.0.1:1"),
            Workload(name="w", source="t", requests=()),
            LoadOptions(abilities=KNOWN),
        )
