"""What connectors know of a handoff comes into the trace of its request, and nothing waits."""

import asyncio
import socket
import time

import pytest
from msgspec.structs import replace
from tests.integrations.vllm.servers import Servers
from tests.runtime.vllm.front import BODY, ask, get, until
from tests.runtime.vllm.test_vllm_traces import told
from tests.runtime.vllm.ticketed_vllm import clock_us, ticketed_pair

from baton.integrations.vllm.messages import HandoffQuestion
from baton.integrations.vllm.process import this_host
from baton.runtime.vllm.handoff_word import fold_word, told_of
from baton.runtime.vllm.handoffs import MAX_WAITING, Handoffs
from baton.telemetry.trace.command import read_source
from baton.telemetry.trace.phases import Phase

STREAM = {**BODY, "stream": True}


@pytest.fixture
def ports():
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


async def test_the_transfer_is_exposed_and_phases_still_add_up(tmp_path, ports):
    traces = tmp_path / "traces"
    async with ticketed_pair(tmp_path / "keys", ports, step_s=0.01, trace_dir=traces) as (
        front,
        _,
        control,
    ):
        for body in (STREAM, BODY, STREAM):
            assert (await ask(front, body)).status == 200
        await until(lambda: front.backend.handoffs.counts["published"] == 3)
        assert sum(map(len, control.asked)) == 3, "the probe is no request"
        for story in await told(front, 3):
            tiling = story.tiling
            assert story.observed == "handoff" and story.mode == "disaggregated"
            assert tiling.of(Phase.TRANSFER) >= 20_000 and tiling.of(Phase.DECODE_LEG) > 0
            assert sum(tiling.durations_us) == tiling.total_us
            assert 20_000 <= story.work.exposed_us <= tiling.total_us
            assert story.ledger.logical_nbytes * 96 == 70 * story.ledger.physical_nbytes
        (flow,) = (await get(front, "/dashboard/feed")).json["flows"]
        assert flow["num_requests"] == 3 and flow["nbytes"] == 3 * story.ledger.physical_nbytes
        page = (await get(front, "/metrics")).raw.decode()
        assert 'baton_vllm_handoff_records_total{outcome="published"} 3.0' in page
        assert "baton_kv_exposed_transfer_seconds_count 2" in page, "whole answers have no clock"
        live = await asyncio.to_thread(read_source, front.url)
    for read in (live, read_source(str(traces))):
        assert read.violations == ()
        assert [one.observed for one in read.stories] == ["handoff"] * 3


@pytest.mark.parametrize("fault", ["silent", "other fence"])
async def test_a_record_that_does_not_fit_leaves_the_coarse_phases(tmp_path, ports, fault):
    async with ticketed_pair(tmp_path, ports) as (front, _, control):
        control.fault = fault
        began_s = time.perf_counter()
        assert (await ask(front, STREAM)).is_done
        assert time.perf_counter() - began_s < 0.6, "the client waits for no record"
        why = "silent" if fault == "silent" else "no_record"
        await until(lambda: front.backend.handoffs.counts[why] == 1)
        (story,) = await told(front, 1)
        assert story.observed == "legs" and not story.ledger.physical_nbytes
        assert story.tiling.of(Phase.TRANSFER) == 0 and story.tiling.of(Phase.DECODE_LEG) > 20_000
        assert why in story.handoff_gap


async def test_a_load_that_failed_is_named_with_the_bytes_that_it_wasted(tmp_path, ports):
    async with ticketed_pair(tmp_path, ports) as (front, (_, decode), _):
        decode.world.flip = True
        await ask(front, STREAM)
        await until(lambda: front.backend.handoffs.counts["failed"] == 1)
        (story,) = await told(front, 1)
        assert story.handoff_gap == "the handoff failed (checksum_mismatch)"
        assert story.observed == "legs" and story.ledger.retried_nbytes > 0
        assert not story.ledger.logical_nbytes


async def test_a_record_of_a_request_that_was_told_changes_nothing(tmp_path, ports):
    async with ticketed_pair(tmp_path, ports) as (front, _, _):
        await ask(front, STREAM)
        (before,) = await told(front, 1)
        await until(lambda: front.backend.handoffs.counts["published"] == 1)
        history = front.backend.tracer.live.history
        assert history.num_late > 0 and history.last(1) == [before] and before.observed == "legs"


class Unheard:
    """A connector that never answers, and a tracer that counts what it is told."""

    is_telling = True

    def __init__(self):
        self.said = []

    async def words(self, wanted, timeout_ms):
        await asyncio.sleep(60)

    def say(self, trace):
        self.said.append(trace.data["reason"])


async def test_what_waits_is_bounded_and_a_question_has_a_deadline():
    unheard, tasks = Unheard(), []
    handoffs = Handoffs(unheard, lambda work: tasks.append(asyncio.create_task(work)))
    decode = type("Decode", (), {"server_id": "decode-0"})()
    for number in range(MAX_WAITING + 5):
        handoffs.want(unheard, decode, {}, f"r{number}", 1)
    assert unheard.said == ["crowded"] * 5 and len(tasks) == 1
    await until(lambda: handoffs.counts["silent"] == 256)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def loaded_ranks():
    """A prompt of four source ranks at two destination ranks: two legs each."""
    world = Servers(4, 2, 4)
    world.now_us = clock_us()
    ticket = world.ticket()
    world.hold(ticket)
    world.load(ticket)
    question = HandoffQuestion(transfer_ids=(ticket.transfer_id,))
    said = [side.legs.answer(question, this_host(), clock_us()) for side in world.d]
    return ticket.fence, said


def moved(said, delay_us):
    later = [replace(one, ended_us=one.ended_us + delay_us) for one in said.records]
    return replace(said, records=tuple(later))


def test_the_last_publication_of_all_legs_counts_and_bytes_are_summed():
    fence, said = loaded_ranks()
    ended_us = said[0].records[0].ended_us
    ranks = [told_of(one, 0, 0) for one in (said[0], moved(said[1], 500))]
    word = fold_word(fence, ranks, ended_us + 1_000)
    marks = {mark.name: mark for mark in word.marks}
    assert list(marks) == ["reserved", "authorized", "all_visible", "validated", "published"]
    assert marks["published"].at_us == ended_us + 500
    data = marks["published"].data
    legs = [record for one in said for record in one.records]
    assert (data["num_legs"], data["duration_us"], data["num_tokens"]) == (4, 500, 70)
    assert data["logical_nbytes"] == sum(leg.logical_nbytes for leg in legs)
    assert data["num_chunks"] == sum(leg.num_chunks for leg in legs)


def test_a_leg_that_is_missing_leaves_nothing():
    fence, said = loaded_ranks()
    ranks = [told_of(one, 0, 0) for one in said]
    assert fold_word(fence, [ranks[0], None], 0).missing == "silent"
    half = replace(said[1], records=said[1].records[:1])
    assert fold_word(fence, [ranks[0], told_of(half, 0, 0)], 0).missing == "no_record"
    assert fold_word(replace(fence, attempt=2), ranks, 0).missing == "no_record"
    lost = [replace(one, reason="source_lost") for one in said[1].records]
    failed = fold_word(fence, [ranks[0], told_of(replace(said[1], records=tuple(lost)), 0, 0)], 0)
    assert failed.failed == "source_lost" and [m.name for m in failed.marks] == ["aborting"]


def test_times_of_another_host_are_moved_and_never_past_the_answer():
    fence, said = loaded_ranks()
    at_us = said[0].records[0].ended_us
    ahead = [replace(one, host="elsewhere", now_us=one.now_us + 10**9) for one in said]
    ahead = [
        replace(one, records=tuple(_shifted(record, 10**9) for record in one.records))
        for one in ahead
    ]
    asked_us = said[0].now_us - 4_000
    ranks = [told_of(one, asked_us, said[0].now_us + 4_000) for one in ahead]
    word = fold_word(fence, ranks, at_us + 10**6)
    assert abs(word.marks[-1].at_us - at_us) < 100_000
    assert fold_word(fence, ranks, at_us - 10**6).marks[-1].at_us == at_us - 10**6


def _shifted(record, by_us):
    names = [name for name in record.__struct_fields__ if name.endswith("_us")]
    return replace(record, **{name: getattr(record, name) + by_us for name in names})
