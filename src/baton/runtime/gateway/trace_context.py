"""W3C trace context: what a client brings, and what it gets back (traceparent, version 00)."""

import re

import msgspec

_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"
)


class TraceContext(msgspec.Struct, frozen=True):
    """Whose trace a request belongs to, in hexadecimal; both are "" for a new one."""

    trace_id: str = ""
    parent_span_id: str = ""


def read_traceparent(header: bytes) -> TraceContext:
    """The context of a header; a malformed one is as good as none, as the standard asks."""
    found = _TRACEPARENT.fullmatch(header.strip())
    if found is None:
        return TraceContext()
    return TraceContext(found[1].decode(), found[2].decode())


def traceparent(trace_id: int, span_id: int) -> bytes:
    """The header that names a span of ours."""
    return b"00-%032x-%016x-01" % (trace_id, span_id)
