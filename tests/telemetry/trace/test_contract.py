"""The contract of a trace: kept by every run under faults, and each way to break it is named."""

import re

import msgspec
import pytest

from baton.errors import ConfigError
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.reading import Lines, read_trace
from baton.telemetry.trace.violation import Fault, Rule, Violation
from baton.telemetry.trace.vocabulary import NAMES
from tests.telemetry.trace.simulated import SOURCE, events_of_seed, lines_of, read

SEED = 4
"""Disaggregated and colocated requests, failures and retries."""


@pytest.fixture(scope="module")
def events() -> list[TraceEvent]:
    return events_of_seed(SEED)


@pytest.fixture(scope="module")
def handed_over(events) -> str:
    """A request that moved chunks and finished."""
    trace = read(events)
    for request_id, mine in trace.by_request.items():
        names = [event.name for event in mine]
        if "chunk_visible" in names and "finished" in names and "attempt_failed" not in names:
            return request_id
    raise AssertionError("the seed shows nothing of interest any more; choose another")


def index_of(events, request_id: str, name: str, place: str = "") -> int:
    return next(
        i
        for i, e in enumerate(events)
        if (e.request_id, e.name) == (request_id, name) and (not place or e.place.startswith(place))
    )


def broken(events, request_id: str) -> Violation:
    trace = read(events)
    assert trace.violations == []
    violation, *_ = trace.check()[request_id]
    return violation


@pytest.mark.parametrize("start", [0, 100, 200, 300])
def test_every_run_under_random_faults_keeps_the_contract(start):
    num_requests = 0
    for seed in range(start, start + 10):
        trace = read(events_of_seed(seed))
        assert trace.violations == []
        assert {k: [str(v) for v in vs] for k, vs in trace.check().items()} == {}
        num_requests += len(trace.by_request)
    assert num_requests > 100


def test_every_event_that_nodes_trace_is_in_the_vocabulary():
    text = "\n".join(path.read_text() for path in sorted((SOURCE / "nodes").rglob("*.py")))
    named = set(re.findall(r"\.trace(?:_copy|_fleet)?\(\s*\"(\w+)\"", text))
    assert len(named) > 30
    assert named <= NAMES


def test_a_missing_step_is_called_truncated(events, handed_over):
    at = index_of(events, handed_over, "validated")
    found = broken(events[:at] + events[at + 1 :], handed_over)
    assert (found.fault, found.rule) == (Fault.TRUNCATED, Rule.WHOLE)
    assert found.event.name == "published" and "without `validated`" in found.text


def test_a_missing_chunk_is_called_truncated(events, handed_over):
    at = index_of(events, handed_over, "chunk_visible")
    found = broken(events[:at] + events[at + 1 :], handed_over)
    assert (found.fault, found.rule) == (Fault.TRUNCATED, Rule.COVERAGE)
    assert "chunks were visible" in found.text


def test_a_chunk_that_covers_too_few_layers_is_named(events, handed_over):
    changed = [
        msgspec.structs.replace(e, data={**e.data, "layer_start": 0})
        if (e.name, e.request_id) == ("chunk_visible", handed_over)
        else e
        for e in events
    ]
    found = broken(changed, handed_over)
    assert found.rule is Rule.COVERAGE and "layer 1 was not visible" in found.text


def test_a_step_after_the_one_that_needs_it_is_called_reordered(events, handed_over):
    at, later = (index_of(events, handed_over, n) for n in ("prefill_done", "published"))
    moved = msgspec.structs.replace(events[later], at_us=events[at].at_us - 1)
    before = [e for e in events[:later] if e.at_us <= moved.at_us]
    after = [e for e in events[:later] if e.at_us > moved.at_us]
    found = broken([*before, moved, *after, *events[later + 1 :]], handed_over)
    assert found.fault is Fault.REORDERED and found.event.name == "published"
    assert "before `validated`" in found.text


def test_a_clock_that_goes_back_is_named_with_both_lines(events, handed_over):
    at = index_of(events, handed_over, "published", "decode")
    back = msgspec.structs.replace(events[at], at_us=0)
    (found, *_) = read([*events[:at], back, *events[at + 1 :]]).violations
    assert (found.fault, found.rule) == (Fault.REORDERED, Rule.CLOCK)
    assert "trace.jsonl: `published`" in found.text and "before the line above it" in found.text


def test_events_of_another_generation_are_called_mixed(events, handed_over):
    at = index_of(events, handed_over, "chunk_visible")
    other = msgspec.structs.replace(events[at], generation=7)
    found = broken([*events[:at], other, *events[at + 1 :]], handed_over)
    assert (found.fault, found.rule) == (Fault.MIXED_GENERATION, Rule.GENERATION)
    assert "generation 7" in found.text and "never routed" in found.text


def test_a_worker_that_is_no_party_is_called_mixed(events, handed_over):
    at = index_of(events, handed_over, "validated")
    other = msgspec.structs.replace(events[at], place="decode-9")
    found = broken([*events[:at], other, *events[at + 1 :]], handed_over)
    assert found.fault is Fault.MIXED_GENERATION and "runs on" in found.text


def test_a_request_that_the_router_never_had_is_called_foreign(events, handed_over):
    at = index_of(events, handed_over, "reserved")
    stranger = msgspec.structs.replace(events[at], request_id="stranger")
    found = broken([*events, msgspec.structs.replace(stranger, at_us=10**12)], "stranger")
    assert (found.fault, found.rule) == (Fault.FOREIGN, Rule.IDENTITY)


def test_an_event_that_nobody_says_there_is_called_foreign(events, handed_over):
    at = index_of(events, handed_over, "validated")
    other = msgspec.structs.replace(events[at], name="became_sentient")
    found = broken([*events[:at], other, *events[at + 1 :]], handed_over)
    assert (found.fault, found.rule) == (Fault.FOREIGN, Rule.VOCABULARY)


def test_an_event_without_its_fields_is_called_foreign(events, handed_over):
    at = index_of(events, handed_over, "published", "decode")
    bare = msgspec.structs.replace(events[at], data={"num_tokens": 3})
    found = broken([*events[:at], bare, *events[at + 1 :]], handed_over)
    assert found.fault is Fault.FOREIGN and "has no num_chunks" in found.text


def test_a_second_publication_and_a_second_end_are_called_duplicates(events, handed_over):
    for name, place, rule in (
        ("published", "decode", Rule.PUBLICATION),
        ("ended", "router", Rule.END),
    ):
        at = index_of(events, handed_over, name, place)
        again = [*events[: at + 1], events[at], *events[at + 1 :]]
        found = broken(again, handed_over)
        assert (found.fault, found.rule) == (Fault.DUPLICATE, rule)


def test_a_line_that_was_cut_is_named_and_the_others_are_read(events):
    whole = lines_of(events)
    cut = Lines("decode-1.jsonl", whole.data[:-20])
    trace = read_trace([cut])
    (found,) = trace.violations
    assert (found.fault, found.rule) == (Fault.TRUNCATED, Rule.LINE)
    assert found.text == f"decode-1.jsonl:{len(events)} ends in the middle of an event"
    assert trace.num_events == len(events) - 1


def test_a_line_of_something_else_within_a_trace_is_named(events):
    lines = lines_of(events).data.split(b"\n")
    lines[3] = b'{"level": "info", "msg": "hello"}'
    (found,) = read_trace([Lines("t.jsonl", b"\n".join(lines))]).violations
    assert found.fault is Fault.FOREIGN and found.text.startswith("t.jsonl:4 is no trace event")


@pytest.mark.parametrize(
    "data", [b'{"resourceLogs": []}\n', b"<html>\n", b"\x1f\x8b\x08\x00\n", b"[1, 2]\n"]
)
def test_a_file_of_something_else_is_refused(data):
    with pytest.raises(ConfigError, match=r"foreign: x\.jsonl:1 is no trace event"):
        read_trace([Lines("x.jsonl", data)])


def test_a_trace_of_workers_alone_is_refused(events):
    with pytest.raises(ConfigError, match=r"truncated: .* none of the router"):
        read([event for event in events if event.place != "router"])


def test_times_of_two_hosts_are_not_compared(events, handed_over):
    """The same skew that is reordered on one host says nothing across two."""

    def skewed(hosts: dict[str, str]) -> list[TraceEvent]:
        marks = [
            TraceEvent(
                at_us=0,
                place=place,
                name="process_started",
                request_id="",
                generation=0,
                data={"unix_us": 1, "host": host},
            )
            for place, host in hosts.items()
        ]
        late = [
            msgspec.structs.replace(e, at_us=e.at_us + 10**6) if e.place == "decode-1" else e
            for e in events
        ]
        return marks + late

    places = {event.place for event in events}
    one = read(skewed(dict.fromkeys(places, "a"))).check()
    two = read(skewed({place: str(place == "decode-1") for place in places})).check()
    assert any(v.fault is Fault.REORDERED for vs in one.values() for v in vs)
    assert two == {}
