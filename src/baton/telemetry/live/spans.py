"""One request as spans: gateway, router, source, destination and decode under one trace id.

Spans are plain values here; whoever exports them gives them wall-clock times. Ids are functions of
the request's id, so that the gateway can name its span to the client before it has ended.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.story import Story
from baton.telemetry.trace.vocabulary import LEG_STEPS, ROUTER_PLACE

Attribute = int | float | str | tuple[str, ...]
_PREFILL = ("prefill_queued", "prefill_started", "prefill_running", "prefill_done", "sealed")
_HANDOFF = ("reserved", "access_granted", "all_visible", "validated", "published", "aborting")
_DECODE = ("admitted", "preempted", "finished")
_ALSO_HANDOFF = ("chunk_arrived", "chunk_visible", "aborted", "inserted")
_PARTS = (("prefill", _PREFILL), ("handoff", _HANDOFF), ("decode", _DECODE))


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One span; times are microseconds of the trace's clock."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    """0 without a parent."""
    start_us: int
    end_us: int
    attributes: dict[str, Attribute]
    events: tuple[TraceEvent, ...] = ()
    is_error: bool = False


def span_id_of(request_id: str, part: str = "") -> int:
    """The id of a request's span; of the gateway's, without a part."""
    digest = hashlib.sha256(f"{request_id}/{part}".encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def trace_id_of(request_id: str) -> int:
    """The trace id of a request whose client brought none."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:16], "big") or 1


def spans_of(story: Story, events: Sequence[TraceEvent], model: str) -> list[SpanRecord]:
    """The spans of one request that has ended; `events` are all of its id, by time."""
    if story.tiling is None:
        return []
    received = next((e for e in events if e.name == "received"), None)
    parent = received.text("parent_span_id") if received else ""
    trace_id = int(story.trace_id, 16) if story.trace_id else trace_id_of(story.request_id)
    root = SpanRecord(
        name=f"{_operation(received)} {model}",
        trace_id=trace_id,
        span_id=span_id_of(story.request_id),
        parent_id=int(parent, 16) if parent else 0,
        start_us=story.tiling.start_us,
        end_us=max(event.at_us for event in events),
        attributes=_gen_ai(story, _operation(received), model),
        events=tuple(e for e in events if e.name in ("received", "first_written", "answered")),
        is_error=story.state in ("failed", "rejected"),
    )
    router = _router_span(root, story, events)
    return [root, router, *_leg_spans(router, story, events), *_worker_spans(router, story, events)]


def _operation(received: TraceEvent | None) -> str:
    return (received.text("operation") if received else "") or "text_completion"


def _gen_ai(story: Story, operation: str, model: str) -> dict[str, Attribute]:
    """The semantic conventions for generative AI, and what is ours under our own name."""
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "baton",
        "gen_ai.request.model": model,
        "gen_ai.response.id": story.request_id,
        "gen_ai.usage.input_tokens": story.num_tokens,
        "gen_ai.usage.output_tokens": story.num_output_tokens,
        "baton.state": story.state,
        "baton.mode": story.mode,
        "baton.cached_tokens": story.cached_tokens,
        "baton.attempts": story.num_attempts,
    }
    if story.has_exposed or not story.observed:
        attributes["baton.exposed_us"] = story.work.exposed_us
    if story.ttft_us:
        attributes["gen_ai.server.time_to_first_token"] = story.ttft_us / 1e6
    if story.tpot_us:
        attributes["gen_ai.server.time_per_output_token"] = story.tpot_us / 1e6
    if story.tiling is not None:
        for phase, start_us, end_us in story.tiling.spans():
            attributes[f"baton.phase.{phase}_us"] = end_us - start_us
    return attributes


def _router_span(root: SpanRecord, story: Story, events: Sequence[TraceEvent]) -> SpanRecord:
    said = [e for e in events if e.place == ROUTER_PLACE and e not in root.events]
    mine = [e for e in said if e.name not in LEG_STEPS]
    return SpanRecord(
        name="route",
        trace_id=root.trace_id,
        span_id=span_id_of(story.request_id, "router"),
        parent_id=root.span_id,
        start_us=mine[0].at_us if mine else root.start_us,
        end_us=mine[-1].at_us if mine else root.start_us,
        attributes={
            "baton.place": ROUTER_PLACE,
            "baton.policy": story.policy,
            "baton.route.reason": story.route_reason,
        },
        events=tuple(mine),
        is_error=root.is_error,
    )


def leg_span_id(request_id: str, generation: int, server: str, leg: str) -> int:
    """The id of a leg's span, which its server gets as the parent of its own."""
    return span_id_of(request_id, f"{generation}/{server}/{leg} leg")


def _leg_spans(router: SpanRecord, story: Story, events: Sequence[TraceEvent]) -> list[SpanRecord]:
    """Each leg from when it went out until it was answered, or its attempt or request ended."""
    spans = []
    for sent in events:
        if sent.name != "leg_sent":
            continue
        leg, server = sent.text("leg"), sent.text("server")
        answered = [
            e for e in events if (e.generation, e.name) == (sent.generation, f"{leg}_answered")
        ]
        until = answered if leg == "prefill" else []
        until = until or [
            e
            for e in events
            if e.name == "ended" or (e.generation, e.name) == (sent.generation, "attempt_failed")
        ]
        spans.append(
            SpanRecord(
                name=f"{leg} leg",
                trace_id=router.trace_id,
                span_id=leg_span_id(story.request_id, sent.generation, server, leg),
                parent_id=router.span_id,
                start_us=sent.at_us,
                end_us=max(sent.at_us, until[0].at_us) if until else sent.at_us,
                attributes={"baton.place": server, "baton.generation": sent.generation},
                events=(sent, *answered),
                is_error=not answered,
            )
        )
    return spans


def _worker_spans(
    router: SpanRecord, story: Story, events: Sequence[TraceEvent]
) -> list[SpanRecord]:
    """For each generation and worker: its prefill, its handoff, its decode, as far as it came."""
    groups: dict[tuple[int, str, str], list[TraceEvent]] = {}
    for event in events:
        part = _part_of(event)
        if event.place != ROUTER_PLACE and part:
            groups.setdefault((event.generation, event.place, part), []).append(event)
    return [
        SpanRecord(
            name=part,
            trace_id=router.trace_id,
            span_id=span_id_of(story.request_id, f"{generation}/{place}/{part}"),
            parent_id=router.span_id,
            start_us=mine[0].at_us,
            end_us=mine[-1].at_us,
            attributes={"baton.place": place, "baton.generation": generation},
            events=tuple(mine),
            is_error=any(event.name == "aborting" for event in mine),
        )
        for (generation, place, part), mine in groups.items()
    ]


def _part_of(event: TraceEvent) -> str:
    for part, names in _PARTS:
        if event.name in names:
            return part
    return "handoff" if event.name in _ALSO_HANDOFF else "prefill"
