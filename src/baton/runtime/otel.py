"""Exports the spans of served requests by OTLP over HTTP; only with telemetry.otlp_endpoint."""

import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from baton import __version__
from baton.runtime.clock import now_us
from baton.telemetry.live.history import Recent
from baton.telemetry.live.spans import SpanRecord, spans_of
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.otlp import DATA, EVENT_GENERATION, EVENT_PLACE, EVENT_REQUEST

_SCOPE = InstrumentationScope("baton", __version__)
_TRACES_PATH = "/v1/traces"


class SpanExport:
    """Batches spans in a thread of the SDK; a collector that is down costs only its spans."""

    def __init__(self, endpoint: str, model: str, exporter: SpanExporter | None = None) -> None:
        self._model = model
        self._resource = Resource.create({"service.name": "baton", "service.version": __version__})
        url = endpoint if endpoint.endswith(_TRACES_PATH) else endpoint.rstrip("/") + _TRACES_PATH
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint=url))
        self._unix_offset_ns = time.time_ns() - now_us() * 1000

    def export(self, recent: Recent) -> None:
        """Hand the spans of one request to the exporter's queue."""
        for span in spans_of(recent.story, recent.events, self._model):
            self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Send what is left, for a moment."""
        self._processor.shutdown()

    def _ns(self, at_us: int) -> int:
        return at_us * 1000 + self._unix_offset_ns

    def _readable(self, span: SpanRecord) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[self._event(event) for event in span.events],
            kind=SpanKind.SERVER
            if "gen_ai.operation.name" in span.attributes
            else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if span.is_error else StatusCode.UNSET),
            start_time=self._ns(span.start_us),
            end_time=self._ns(max(span.start_us, span.end_us)),
            instrumentation_scope=_SCOPE,
        )

    def _event(self, event: TraceEvent) -> Event:
        attributes = {
            EVENT_PLACE: event.place,
            EVENT_REQUEST: event.request_id,
            EVENT_GENERATION: event.generation,
            **{DATA + name: value for name, value in event.data.items()},
        }
        return Event(event.name, attributes, self._ns(event.at_us))


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))
