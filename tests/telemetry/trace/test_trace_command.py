"""`baton trace` on files, folders, exports and nonsense: what it prints and what it returns."""

import io

import msgspec
import pytest
from rich.console import Console

from baton.bench.trace_read import request_events, write_trace
from baton.errors import ConfigError
from baton.telemetry.trace.command import compare_command, read_source, trace_command
from baton.telemetry.trace.event import TraceEvent


@pytest.fixture
def folder(tmp_path):
    """Forty requests, as three processes write them."""
    assert write_trace(tmp_path, 40 * 41) == 40 * 41
    return tmp_path


def said(run, *args, **options) -> tuple[int, str]:
    out = io.StringIO()
    code = run(*map(str, args), Console(file=out, width=120), **options)
    return code, out.getvalue()


def test_a_folder_is_reported(folder):
    code, text = said(trace_command, folder)
    assert code == 0
    assert "1640 events of 40 requests and copies at decode-1, prefill-0, router" in text
    assert "requests: 40 finished" in text and "most time went to: 40 prefill" in text
    assert "time to first token" in text and "100.0%" in text


def test_the_slowest_are_drawn(folder):
    code, text = said(trace_command, folder, slowest=2)
    assert code == 0 and text.count("first token after") == 2 and "█" in text
    assert "~ network" in text and "overlap" in text


def test_one_request_is_drawn_by_the_begin_of_its_id(folder):
    _, text = said(trace_command, folder, request=f"{7:032x}")
    assert text.count("first token after") == 1 and "requests:" not in text
    with pytest.raises(ConfigError, match="no whole request of that id"):
        said(trace_command, folder, request="feed")


def test_json_is_whole(folder):
    _, text = said(trace_command, folder, slowest=3, as_json=True)
    body = msgspec.json.decode(text)
    assert body["num_events"] == 1640 and body["violations"] == []
    assert len(body["requests"]) == 3 and body["summary"]["num_requests"] == 40


def test_a_broken_request_is_named_left_out_and_exits_1(folder):
    path = folder / "decode-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"validated"' in line)
    path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    code, text = said(trace_command, folder)
    assert code == 1 and "! truncated: `published` at decode-1 of 000" in text
    assert "is without `validated` of a worker" in text and "requests: 39 finished" in text


def test_two_traces_are_compared(folder, tmp_path):
    slow = tmp_path / "slow"
    slow.mkdir()
    late = []
    for event in request_events(0):
        later_us = 5_000 if event.at_us >= 700 else 0
        late.append(msgspec.structs.replace(event, at_us=event.at_us + later_us))
    (slow / "router.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(late))
    code, text = said(compare_command, folder, slow)
    assert code == 0
    assert "The largest change is prefill: 5.00 ms more." in text


def otlp(events: list[TraceEvent]) -> bytes:
    """What an exporter makes of events, in the encoding of the OTLP specification."""

    def value(one) -> dict:
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    def attributes(event: TraceEvent) -> list[dict]:
        own = {
            "baton.place": event.place,
            "baton.request": event.request_id,
            "baton.generation": event.generation,
        }
        pairs = {**own, **{f"baton.data.{k}": v for k, v in event.data.items()}}
        return [{"key": key, "value": value(one)} for key, one in pairs.items()]

    spans = [
        {
            "name": "request",
            "events": [
                {
                    "timeUnixNano": str((event.at_us + 10**15) * 1000),
                    "name": event.name,
                    "attributes": attributes(event),
                }
                for event in events
            ],
        }
    ]
    return msgspec.json.encode({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def test_an_otlp_export_gives_the_same_report(folder, tmp_path):
    events = [event for number in range(40) for event in request_events(number)]
    export = tmp_path / "export.json"
    export.write_bytes(otlp(events))
    mine, theirs = read_source(str(folder)), read_source(str(export))
    assert [one.ttft_us for one in theirs.stories] == [one.ttft_us for one in mine.stories]
    assert theirs.violations == () and len(theirs.stories) == 40
    lines = tmp_path / "lines.json"
    lines.write_bytes(otlp(request_events(1)) + b"\n" + otlp(request_events(2)) + b"\n")
    assert len(read_source(str(lines)).stories) == 2


def test_an_export_of_something_else_is_refused(tmp_path):
    other = tmp_path / "other.json"
    span = {"name": "GET /", "events": [{"name": "exception", "timeUnixNano": "1"}]}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    other.write_bytes(msgspec.json.encode(body))
    with pytest.raises(ConfigError, match=r"foreign: other\.json is an OTLP export without one"):
        read_source(str(other))
    other.write_bytes(msgspec.json.encode(body)[:-9])
    with pytest.raises(ConfigError, match=r"truncated: other\.json begins like an OTLP export"):
        read_source(str(other))


@pytest.mark.parametrize(
    ("name", "text"),
    [("absent", "cannot be read: No such file"), ("empty", r"has no \*\.jsonl file")],
)
def test_nothing_to_read_is_said(tmp_path, name, text):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=text):
        read_source(str(tmp_path / name))


def test_a_foreign_first_line_is_named_and_the_rest_is_read(folder):
    path = folder / "decode-1.jsonl"
    path.write_bytes(b'{"hello": 1}\n' + path.read_bytes())
    code, text = said(trace_command, folder)
    assert code == 1 and "decode-1.jsonl:1 is no trace event" in text
    assert "requests: 40 finished" in text


def test_two_traces_that_are_equal_say_so(folder):
    _, text = said(compare_command, folder, folder)
    assert "No phase changed." in text and "largest change" not in text


def test_an_address_at_which_nothing_answers_is_the_argument():
    with pytest.raises(ConfigError, match=r"^trace http://127.0.0.1:1 does not answer"):
        read_source("http://127.0.0.1:1")


def test_a_request_whose_arrival_could_not_be_written_is_not_foreign(folder):
    path = folder / "router.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    gone = f"{7:032x}".encode()
    kept = [line for line in lines if gone not in line]
    assert len(kept) < len(lines)
    at_us = max(event.at_us for event in request_events(39)) + 10**9
    stopped = TraceEvent(
        at_us=at_us, place="router", name="process_stopped", request_id="", generation=0,
        data={"num_dropped": len(lines) - len(kept)},
    )  # fmt: skip
    path.write_bytes(b"".join(kept) + msgspec.json.encode(stopped) + b"\n")
    code, text = said(trace_command, folder)
    assert code == 1 and "! truncated: " in text and "foreign" not in text
    assert f"the router could not write {len(lines) - len(kept)} events" in " ".join(text.split())
