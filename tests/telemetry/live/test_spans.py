"""Spans of a request hang together under one trace id, and nothing secret is in any of them."""

import msgspec
import pytest

from baton.core.effects import Trace
from baton.runtime.gateway.trace_context import read_traceparent, traceparent
from baton.telemetry.live.spans import span_id_of, spans_of, trace_id_of
from baton.telemetry.live.story_metrics import StoryMetrics
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.story import is_request, tell
from tests.stage import Stage, uneven_plan
from tests.telemetry.trace.simulated import events_of_seed, read
from tests.telemetry.trace.test_phases import SPLIT


def test_every_part_hangs_under_the_gateway_of_one_trace():
    num_spans = 0
    for events in read(events_of_seed(4)).by_request.values():
        if not is_request(events):
            continue
        spans = spans_of(tell(events), events, "tiny")
        assert len({span.trace_id for span in spans}) == 1
        root, router, *others = spans
        assert root.parent_id == 0 and router.parent_id == root.span_id
        assert {span.parent_id for span in others} <= {router.span_id}
        assert len({span.span_id for span in spans}) == len(spans)
        assert sum(len(span.events) for span in spans) == len(events), "each event once"
        assert all(span.start_us <= span.end_us <= root.end_us for span in spans)
        num_spans += len(spans)
    assert num_spans > 20


def test_the_gateway_span_follows_the_conventions_for_generative_ai():
    mine = msgspec.structs.replace(
        SPLIT[0],
        data={**SPLIT[0].data, "operation": "chat", "trace_id": "ab" * 16,
              "parent_span_id": "cd" * 8},
    )  # fmt: skip
    events = [mine, *SPLIT[1:]]
    root, router, *others = spans_of(tell(events), events, "smollm2")
    assert root.name == "chat smollm2"
    assert (root.trace_id, root.parent_id) == (int("ab" * 16, 16), int("cd" * 8, 16))
    assert root.attributes["gen_ai.usage.input_tokens"] == 64
    assert root.attributes["gen_ai.usage.output_tokens"] == 21
    assert root.attributes["gen_ai.server.time_to_first_token"] == 0.009225
    assert root.attributes["baton.phase.prefill_us"] == 6_000
    places = {span.attributes["baton.place"]: span.name for span in others}
    assert places == {"p": "prefill", "d": "decode"} and router.name == "route"


@pytest.mark.parametrize(
    ("header", "trace_id"),
    [
        (b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01", "ab" * 16),
        (b"cc-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01-later", "ab" * 16),
        (b"ff-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01", ""),
        (b"00-" + b"00" * 16 + b"-" + b"cd" * 8 + b"-01", ""),
        (b"00-" + b"ab" * 16 + b"-" + b"00" * 8 + b"-01", ""),
        (b"00-" + b"AB" * 16 + b"-" + b"cd" * 8 + b"-01", ""),
        (b"", ""),
        (b"00-1-2-3", ""),
    ],
)
def test_a_malformed_trace_context_is_as_good_as_none(header, trace_id):
    assert read_traceparent(header).trace_id == trace_id


def test_the_header_that_goes_out_is_one_that_comes_in():
    header = traceparent(trace_id_of("r"), span_id_of("r"))
    found = read_traceparent(header)
    assert int(found.trace_id, 16) == trace_id_of("r")
    assert int(found.parent_span_id, 16) == span_id_of("r")


SECRETS = ("salt-of-the-tenant", "tenant-key-4711", "99887")


def test_no_trace_span_or_metric_holds_prompt_salt_tenant_or_names_of_blocks():
    stage = Stage(uneven_plan())
    request = stage.submit(
        "r", (99887,) * 33, tenant_id=SECRETS[1], cache_salt=SECRETS[0], max_tokens=5
    )
    names = stage.world.router.context.names(request, request.prompt_token_ids)
    assert len(names) > 3
    stage.serve()
    stage.settle(2_000_000)
    events = [
        TraceEvent(
            at_us=at_us,
            place=place,
            name=one.name,
            request_id=one.request_id,
            generation=one.generation,
            data=one.data,
        )
        for at_us, place, one in stage.traces
    ]
    mine = [event for event in events if event.request_id == "r"]
    assert len(mine) > 15 and all(isinstance(one, Trace) for _, _, one in stage.traces)
    story, metrics = tell(mine), StoryMetrics(ttft_slo_us=1)
    for event in mine:
        metrics.take(event)
    metrics.tell(story)
    told = msgspec.json.encode([events, spans_of(story, mine, "tiny"), story]) + metrics.render()
    for secret in SECRETS:
        assert secret.encode() not in told
    for name in names:
        assert name.hex().encode() not in told and name not in told
