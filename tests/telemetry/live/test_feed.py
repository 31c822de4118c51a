"""What the page shows of a simulated deployment, and that it stays quick with a long history."""

import time

import msgspec

from baton.telemetry.live.feed import NUM_SHOWN, make_detail, make_feed
from baton.telemetry.live.history import SETTLE_US, TraceHistory
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.event import TraceEvent
from tests.stage import Stage, uneven_plan
from tests.telemetry.trace.test_phases import SPLIT


def served(num: int) -> tuple[Stage, TraceHistory, StoryMetrics]:
    stage = Stage(uneven_plan())
    for number in range(num):
        stage.submit(f"r{number}", 33, first=40 * number)
    stage.serve()
    stage.settle(2_000_000)
    metrics = StoryMetrics(ttft_slo_us=10**9)
    history = TraceHistory(1000, lambda recent: metrics.tell(recent.story))
    for at_us, place, one in stage.traces:
        event = TraceEvent(
            at_us=at_us,
            place=place,
            name=one.name,
            request_id=one.request_id,
            generation=one.generation,
            data=one.data,
        )
        history.take(event, at_us)
    history.settle(stage.world.timeline.now_us + SETTLE_US)
    return stage, history, metrics


def test_the_feed_is_that_of_the_run():
    stage, history, metrics = served(3)
    now_us = stage.world.timeline.now_us
    feed = make_feed(stage.world.router, history, metrics, now_us)
    assert [card.worker_id for card in feed.workers] == ["decode-1", "prefill-0"]
    for card in feed.workers:
        pool = stage.world.workers[card.worker_id].node.context.memory.pool
        assert sum(card.blocks.values()) == pool.num_blocks and card.blocks["used"] == 0
    (flow,) = feed.flows
    assert (flow.source, flow.destination, flow.num_requests) == ("prefill-0", "decode-1", 3)
    assert flow.nbytes == sum(story.ledger.physical_nbytes for story in history.last(9))
    assert (feed.open_requests, feed.ready, feed.ttft.num) == (0, "", 3)
    assert [row.request_id for row in feed.requests] == [s.request_id for s in history.last(9)]
    (cell,) = feed.attainment.values()
    assert (cell["num"], cell["joint"]) == (3, 1.0)
    for row in feed.requests:
        assert abs(sum(length for _, _, length in row.spans) - row.total_ms) < 1e-6
        assert row.sentence.startswith("first token after") and row.tpot_ms >= 0


def test_the_page_of_a_request_has_every_event():
    stage, history, _ = served(1)
    recent = history.find("r0")
    detail = make_detail(recent.story, recent.events, stage.world.timeline.now_us)
    assert len(detail.events) == len(recent.events) > 10
    body = msgspec.json.decode(msgspec.json.encode(detail))
    assert body["story"]["ledger"]["logical_nbytes"] == 33 * 3 * 2 * 4
    assert [event[0] for event in body["events"]] == sorted(event[0] for event in body["events"])


def test_a_long_history_costs_the_page_little():
    """A thousand requests of one second: one look takes far less than the second between looks."""
    stage, _, metrics = served(1)
    history = TraceHistory(1000, lambda _: None)
    for number in range(1000):
        for one in SPLIT:
            event = msgspec.structs.replace(one, request_id=f"n{number}")
            history.take(event, event.at_us)
    history.settle(10 * SETTLE_US)
    begin = time.process_time()
    feed = make_feed(stage.world.router, history, metrics, 100_000)
    assert time.process_time() - begin < 0.25
    assert (feed.ttft.num, len(feed.requests)) == (1000, NUM_SHOWN)


def test_a_token_given_late_makes_no_further_one_negative():
    """A short answer may have ended at the router before its first token was written."""
    late = [
        msgspec.structs.replace(e, at_us=40_000) if e.name == "first_written" else e for e in SPLIT
    ]
    history = TraceHistory(10, lambda _: None)
    for one in late:
        history.take(one, one.at_us)
    history.settle(10 * SETTLE_US)
    (story,) = history.last(1)
    assert story.ttft_us == 39_200 and story.tpot_us == (30_025 - 9_901) / 20
