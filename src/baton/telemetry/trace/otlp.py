"""Trace events in an OTLP export in JSON: each is an event of the span in which it happened.

A collector's file exporter writes one export request a line, others a whole file; both are read.
"""

from typing import Any

import msgspec

from baton.errors import ConfigError
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.reading import Lines

EVENT_PLACE, EVENT_GENERATION, EVENT_REQUEST = "baton.place", "baton.generation", "baton.request"
DATA = "baton.data."
_OWN = (EVENT_PLACE, EVENT_GENERATION, EVENT_REQUEST)


class _Value(msgspec.Struct, frozen=True, rename="camel"):
    string_value: str | None = None
    int_value: str | int | None = None
    double_value: float | None = None
    bool_value: bool | None = None


class _Attribute(msgspec.Struct, frozen=True):
    key: str
    value: _Value = _Value()


class _SpanEvent(msgspec.Struct, frozen=True, rename="camel"):
    time_unix_nano: str | int = 0
    name: str = ""
    attributes: tuple[_Attribute, ...] = ()


class _Span(msgspec.Struct, frozen=True):
    events: tuple[_SpanEvent, ...] = ()


class _Scope(msgspec.Struct, frozen=True):
    spans: tuple[_Span, ...] = ()


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    scope_spans: tuple[_Scope, ...] = ()


class _Export(msgspec.Struct, frozen=True, rename="camel"):
    resource_spans: tuple[_Resource, ...]


def is_otlp(data: bytes) -> bool:
    """True for what begins like an export of spans."""
    return b'"resourceSpans"' in data[:4096]


def from_otlp(file: Lines) -> Lines:
    """The same events as lines of a trace. Raises ConfigError where there are none."""
    try:
        exports = [msgspec.json.decode(file.data, type=_Export)]
    except msgspec.MsgspecError:
        try:
            exports = msgspec.json.Decoder(_Export).decode_lines(file.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"truncated: {file.name} begins like an OTLP export in JSON and is none: {error}"
            ) from error
    events = sorted(
        (
            _event(one)
            for export in exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            for one in span.events
            if _is_ours(one)
        ),
        key=lambda event: event.at_us,
    )
    if not events:
        raise ConfigError(
            f"foreign: {file.name} is an OTLP export without one event of Baton; give one of a "
            "deployment that ran with telemetry.otlp_endpoint"
        )
    return Lines(file.name, msgspec.json.Encoder().encode_lines(events))


def _is_ours(event: _SpanEvent) -> bool:
    return any(one.key == EVENT_PLACE for one in event.attributes)


def _event(event: _SpanEvent) -> TraceEvent:
    values = {one.key: _plain(one.value) for one in event.attributes}
    return TraceEvent(
        at_us=int(event.time_unix_nano) // 1000,
        place=str(values[EVENT_PLACE]),
        name=event.name,
        request_id=str(values.get(EVENT_REQUEST, "")),
        generation=int(values.get(EVENT_GENERATION, 0)),
        data={k.removeprefix(DATA): v for k, v in values.items() if k not in _OWN},
    )


def _plain(value: _Value) -> Any:
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return int(value.int_value)
    if value.double_value is not None:
        return value.double_value
    return int(bool(value.bool_value))
