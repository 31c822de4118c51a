"""Phases tile every request that the nodes can produce, and each falls where it belongs."""

import pytest

from baton.telemetry.trace.bound import bound_of, explain
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.phases import PHASES, Phase, tile
from baton.telemetry.trace.story import is_request, tell
from baton.telemetry.trace.summary import summarize
from baton.telemetry.trace.waterfall import waterfall
from tests.telemetry.trace.simulated import events_of_seed, read


def event(at_us: int, place: str, name: str, generation: int = 1, **data) -> TraceEvent:
    return TraceEvent(
        at_us=at_us, place=place, name=name, request_id="r", generation=generation, data=data
    )


SPLIT = [
    event(1_000, "router", "received", 0, waited_us=200),
    event(1_100, "router", "arrived", 0, num_tokens=64),
    event(1_500, "router", "routed", mode="disaggregated", prefill="p", decode="d"),
    event(1_700, "d", "reserved", visible_tokens=0, blocks=4),
    event(2_000, "p", "prefill_queued", num_tokens=64),
    event(3_000, "p", "prefill_running", num_rows=64),
    event(9_000, "p", "prefill_done", num_tokens=64),
    event(9_400, "d", "all_visible"),
    event(9_700, "d", "validated"),
    event(9_705, "d", "published", num_tokens=64, num_chunks=0, num_layers=1),
    event(9_725, "d", "admitted", num_tokens=64),
    event(9_900, "router", "published"),
    event(9_901, "router", "first_token"),
    event(10_025, "router", "first_written", 0),
    event(30_025, "d", "finished", reason="length", num_tokens=21),
    event(30_025, "router", "ended", state="FINISHED"),
]


def test_each_phase_falls_between_its_events():
    tiling = tile(SPLIT)
    assert dict(zip(PHASES, tiling.durations_us, strict=True)) == {
        Phase.ARRIVAL: 300,
        Phase.RETRY: 0,
        Phase.FETCH: 0,
        Phase.WAIT: 400,
        Phase.ROUTE: 500,
        Phase.QUEUE: 1_000,
        Phase.PREFILL: 6_000,
        Phase.PREFILL_LEG: 0,
        Phase.TRANSFER: 400,
        Phase.VALIDATE: 300,
        Phase.PUBLISH: 5,
        Phase.ADMISSION: 20,
        Phase.DECODE_LEG: 0,
        Phase.FIRST_TOKEN: 300,
    }
    assert (tiling.start_us, tiling.total_us, tiling.is_answered) == (800, 9_225, True)


def test_both_clocks_and_the_sentence_of_it():
    story = tell(SPLIT)
    assert (story.ttft_us, story.tpot_us) == (9_225, (30_025 - 9_901) / 20)
    assert bound_of(story) is Phase.PREFILL
    assert explain(story).startswith("first token after 9.22 ms (p to d); prefill took 6.00 ms")


def test_failed_attempts_are_a_phase_of_their_own():
    first = [
        event(1_200, "router", "routed", 1, mode="disaggregated", prefill="q", decode="d"),
        event(1_400, "router", "attempt_failed", 1, reason="source_lost", fallback="reroute"),
    ]
    again = [
        TraceEvent(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "generation": 2})
        if e.generation
        else e
        for e in SPLIT
    ]
    events = sorted([*first, *again], key=lambda e: e.at_us)
    tiling = tile(events)
    assert tiling.generation == 2 and tiling.total_us == 9_225
    assert tiling.of(Phase.RETRY) == 200 and tiling.of(Phase.WAIT) == 100 + 100
    assert tell(events).failures == ("source_lost, then reroute",)


def test_a_copy_that_came_first_is_a_phase_of_its_own():
    fetching = event(1_150, "router", "fetching", 0, owner="d", to="p")
    tiling = tile(sorted([*SPLIT, fetching], key=lambda e: e.at_us))
    assert (tiling.of(Phase.WAIT), tiling.of(Phase.FETCH)) == (50, 350)
    assert tiling.total_us == 9_225


@pytest.mark.parametrize(
    ("last", "phase"),
    [
        ("arrived", Phase.WAIT),
        ("routed", Phase.ROUTE),
        ("prefill_queued", Phase.QUEUE),
        ("prefill_running", Phase.PREFILL),
        ("prefill_done", Phase.TRANSFER),
        ("all_visible", Phase.VALIDATE),
    ],
)
def test_who_ends_without_a_token_spent_the_rest_where_it_was(last, phase):
    until = next(i for i, e in enumerate(SPLIT) if e.name == last)
    ended = event(50_800, "router", "ended", state="CANCELLED")
    tiling = tile([*SPLIT[: until + 1], ended])
    assert tiling.total_us == 50_000 and not tiling.is_answered
    assert max(PHASES, key=tiling.of) is phase


def test_a_late_report_makes_no_phase_negative():
    """The read-back of the last chunk may be reported before the source says it is done."""
    early = [event(8_000, "d", "all_visible") if e.name == "all_visible" else e for e in SPLIT]
    tiling = tile(sorted(early, key=lambda e: e.at_us))
    assert tiling.of(Phase.TRANSFER) == 0 and tiling.of(Phase.VALIDATE) == 700
    assert tiling.total_us == 9_225


@pytest.mark.parametrize("start", [400, 500])
def test_every_simulated_request_is_tiled_from_arrival_to_token_or_end(start):
    states = set()
    for seed in range(start, start + 8):
        trace = read(events_of_seed(seed))
        for events in trace.by_request.values():
            if not is_request(events):
                continue
            story = tell(events)
            states.add((story.state, bool(story.ttft_us)))
            arrived = next(e.at_us for e in events if e.name == "arrived")
            name = "first_token" if story.tiling.is_answered else "ended"
            until = next(e.at_us for e in events if (e.place, e.name) == ("router", name))
            assert story.tiling.total_us == until - arrived
            assert min(story.tiling.durations_us) >= 0
    assert {("finished", True), ("rejected", False), ("cancelled", False)} <= states


def test_the_waterfall_shows_each_phase_on_one_axis():
    lines = waterfall(tell(SPLIT), columns=40)
    assert lines[0] == "r" and "prefill took" in lines[1]
    bars = {line.split()[0]: line[14:54] for line in lines[2:] if "█" in line or "▏" in line}
    assert list(bars) == [str(p) for p in PHASES if tile(SPLIT).of(p)]
    assert bars["prefill"].count("█") == 26
    starts = [len(bar) - len(bar.lstrip()) for bar in bars.values()]
    assert starts == sorted(starts)


def test_the_summary_counts_only_who_had_a_token_among_phases():
    refused = [
        event(5, "router", "arrived", 0, num_tokens=9),
        event(9, "router", "rejected", 0, code="queue_full", reason="9 tokens are waiting"),
        event(9, "router", "ended", 0, state="REJECTED"),
    ]
    summary = summarize([tell(SPLIT), tell(refused)])
    assert summary.states == {"finished": 1, "rejected": 1}
    assert summary.reasons == {"9 tokens are waiting": 1}
    assert sum(one.mean_us for one in summary.phases) == summary.ttft.mean_us == 9_225
    assert sum(one.share for one in summary.phases) == pytest.approx(1.0)
    assert summary.exposed.mean_us == 705
