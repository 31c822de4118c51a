"""Spans reach a collector by OTLP, and what it wrote down gives the same report."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="extra `otel` is not installed"
)
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.telemetry.trace.simulated import events_of_seed, read

from baton.config import load_config
from baton.core.effects import Trace
from baton.errors import ConfigError
from baton.runtime.live_telemetry import LiveTelemetry
from baton.runtime.otel import SpanExport
from baton.telemetry.live.history import Recent
from baton.telemetry.trace.command import read_source
from baton.telemetry.trace.story import is_request, tell


@pytest.fixture
def collector():
    """An OTLP endpoint that keeps what it is sent."""
    kept: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            data = self.rfile.read(int(self.headers["content-length"]))
            kept.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kept
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_collector_kept_gives_the_same_report(collector, tmp_path):
    url, kept = collector
    export, told = SpanExport(url, "tiny"), {}
    for events in read(events_of_seed(4)).by_request.values():
        if is_request(events):
            story = tell(events)
            told[story.request_id] = story
            export.export(Recent(story, list(events)))
    export.close()
    path = tmp_path / "export.json"
    path.write_text("".join(MessageToJson(one, indent=None) + "\n" for one in kept))
    again = read_source(str(path))
    assert again.violations == () and len(told) > 5
    for story in again.stories:
        mine = told.pop(story.request_id)
        assert story.tiling.durations_us == mine.tiling.durations_us
        assert (story.state, story.ledger) == (mine.state, mine.ledger)
    assert told == {}


def test_spans_of_one_request_arrive_under_one_trace_with_their_parents(collector):
    url, kept = collector
    live = LiveTelemetry(load_config(None, [f'telemetry.otlp_endpoint="{url}"']))
    header = {"trace_id": "ab" * 16, "parent_span_id": "cd" * 8}
    live.record(Trace(name="received", request_id="r", data={"waited_us": 1, **header}), 5)
    live.record(Trace(name="arrived", request_id="r", data={"num_tokens": 3}), 10)
    live.record(Trace(name="ended", request_id="r", data={"state": "FAILED"}), 900)
    live.close()
    spans = [s for k in kept for r in k.resource_spans for c in r.scope_spans for s in c.spans]
    assert {span.trace_id.hex() for span in spans} == {"ab" * 16}
    root, router = spans
    assert root.parent_span_id.hex() == "cd" * 8 and router.parent_span_id == root.span_id
    assert root.end_time_unix_nano - root.start_time_unix_nano == 896_000
    assert [event.name for event in router.events] == ["arrived", "ended"]


def a_failed_request(live):
    at_us = live._now_us()
    live.record(Trace(name="arrived", request_id="r", data={"num_tokens": 3}), at_us)
    live.record(Trace(name="ended", request_id="r", data={"state": "FAILED"}), at_us + 900)


async def test_the_spans_of_the_last_request_leave_though_nothing_follows(collector):
    url, kept = collector
    live = LiveTelemetry(load_config(None, [f'telemetry.otlp_endpoint="{url}"']))
    a_failed_request(live)
    async with asyncio.timeout(2.5):
        while not kept:
            await asyncio.sleep(0.05)
    assert b'baton_otlp_spans_total{outcome="exported"} 2' in live.metrics.render()
    live.close()


def test_a_collector_that_is_down_costs_its_spans_which_are_counted_and_said_once(capfd):
    live = LiveTelemetry(load_config(None, ['telemetry.otlp_endpoint="http://127.0.0.1:9"']))
    a_failed_request(live)
    live.close()
    page = live.metrics.render().decode()
    assert 'baton_otlp_spans_total{outcome="lost"} 2.0' in page
    assert 'baton_otlp_spans_total{outcome="exported"} 0.0' in page
    said = capfd.readouterr().err
    assert said.count("telemetry.otlp_endpoint http://127.0.0.1:9 takes no spans") == 1
    assert len(said.splitlines()) == 1, "no lines of the SDK"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (['telemetry.otlp_endpoint="collector:4318"'], "write it like http://127.0.0.1:4318"),
        (
            ['telemetry.otlp_endpoint="http://c:1"', "telemetry.live=false"],
            r"set telemetry\.live=true",
        ),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        LiveTelemetry(load_config(None, settings))
