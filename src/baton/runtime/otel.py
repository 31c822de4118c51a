"""Exports the spans of served requests by OTLP over HTTP; only with telemetry.otlp_endpoint."""

import logging
import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from baton import __version__
from baton.runtime.clock import now_us
from baton.runtime.notice import notice
from baton.telemetry.live.history import Recent
from baton.telemetry.live.spans import SpanRecord, spans_of
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.otlp import DATA, EVENT_GENERATION, EVENT_PLACE, EVENT_REQUEST

_SCOPE = InstrumentationScope("baton", __version__)
_TRACES_PATH = "/v1/traces"
_DELAY_MS = 200
"""A batch leaves after so long, full or not."""
_MAX_WAITING = 2048
"""Spans between here and the collector; one more is lost."""
_LIMIT_S = 3.0
"""Of one batch, tries included; so long may the end of a gateway wait for a collector."""
_NEXT_WORD_S = 300.0
_LOG = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")


class _Reason(logging.Handler):
    """Keeps what the SDK says of a failure, for our own line, instead of printing each try."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "it does not answer"

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.text = record.getMessage().partition(", retrying in")[0]


class _Counted:
    """Counts what a collector took and what it did not, and says so once, then seldom.

    Runs in the thread of the SDK alone; others only read its numbers.
    """

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._reason = _Reason()
        self._next_word_s = 0.0
        self.num_exported = 0
        self.num_lost = 0
        _LOG.addHandler(self._reason)
        _LOG.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand a batch on."""
        try:
            result = self._inner.export(spans)
        except Exception as error:  # a batch that cannot be written ends only itself
            self._reason.text = str(error) or type(error).__name__
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.num_exported += len(spans)
        else:
            self.num_lost += len(spans)
            self._say()
        return result

    def _say(self) -> None:
        if time.monotonic() < self._next_word_s:
            return
        self._next_word_s = time.monotonic() + _NEXT_WORD_S
        notice(
            "gateway",
            f"telemetry.otlp_endpoint {self._endpoint} takes no spans: {self._reason.text}; "
            f"{self.num_lost} lost so far (baton_otlp_spans_total), requests go on; start a "
            "collector there, or name another",
        )

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()
        _LOG.removeHandler(self._reason)


class SpanExport:
    """Batches spans in a thread of the SDK; a collector that is down costs only its spans."""

    def __init__(self, endpoint: str, model: str, exporter: SpanExporter | None = None) -> None:
        self._model = model
        self._resource = Resource.create({"service.name": "baton", "service.version": __version__})
        url = endpoint if endpoint.endswith(_TRACES_PATH) else endpoint.rstrip("/") + _TRACES_PATH
        self._exporter = _Counted(
            exporter or OTLPSpanExporter(endpoint=url, timeout=_LIMIT_S), endpoint
        )
        self._processor = BatchSpanProcessor(
            self._exporter, max_queue_size=_MAX_WAITING, schedule_delay_millis=_DELAY_MS
        )
        self._num_taken = 0
        self._num_refused = 0
        self._unix_offset_ns = time.time_ns() - now_us() * 1000

    def export(self, recent: Recent) -> None:
        """Hand the spans of one request to the exporter's queue."""
        for span in spans_of(recent.story, recent.events, self._model):
            over = self._num_taken - self._exporter.num_exported - self._exporter.num_lost
            if over >= _MAX_WAITING:
                self._num_refused += 1
                continue
            self._num_taken += 1
            self._processor.on_end(self._readable(span))

    def counts(self) -> dict[str, int]:
        """Spans by outcome: exported, or lost because the collector did not take them in time."""
        lost = self._exporter.num_lost + self._num_refused
        return {"exported": self._exporter.num_exported, "lost": lost}

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
