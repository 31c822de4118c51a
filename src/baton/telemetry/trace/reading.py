"""Reads trace files: lines to events, by request and by time, with what is wrong with the files.

A million events are read, checked and folded in ten seconds on one core; `python -m
baton.bench.trace_read` measures it.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.telemetry.trace.contract import Clocks, check_request
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.violation import Fault, Rule, Violation
from baton.telemetry.trace.vocabulary import (
    DETAILS,
    EVENTS_LOST,
    ROUTER_PLACE,
    TOLD,
    field_defect,
    kind_of,
)

_MAX_SHOWN_CHARS = 60


class Lines(msgspec.Struct, frozen=True):
    """The bytes of one file, and what to call it."""

    name: str
    data: bytes


class ReadTrace(msgspec.Struct, kw_only=True):
    """Everything that was read. `by_request` has the events of each id by time."""

    by_request: dict[str, list[TraceEvent]] = {}
    of_no_request: list[TraceEvent] = []
    files: list[str] = []
    num_events: int = 0
    has_details: bool = False
    violations: list[Violation] = []
    """Of files and clocks; those of requests are found by `check`."""

    @property
    def hosts(self) -> dict[str, str]:
        """Which host each place ran on, as far as its process said."""
        started = (e for e in self.of_no_request if e.name == "process_started")
        return {event.place: event.text("host") for event in started}

    @property
    def num_dropped(self) -> int:
        """Events that processes could not write."""
        stopped = (e for e in self.of_no_request if e.name == "process_stopped")
        return sum(event.number("num_dropped") for event in stopped)

    @property
    def lost(self) -> dict[str, int]:
        """Workers that died before they had told all, and of how many requests and copies."""
        marked = {
            (event.text("worker"), event.request_id)
            for events in self.by_request.values()
            for event in events
            if event.place == ROUTER_PLACE and event.name == EVENTS_LOST
        }
        return dict(sorted(Counter(worker for worker, _ in marked).items()))

    def check(self) -> dict[str, list[Violation]]:
        """What requests break, by id; one that keeps the contract is absent."""
        clocks, found = Clocks(self.hosts), {}
        dropped = sum(
            event.number("num_dropped")
            for event in self.of_no_request
            if (event.place, event.name) == (ROUTER_PLACE, "process_stopped")
        )
        for request_id, events in self.by_request.items():
            if broken := check_request(
                events, clocks, has_details=self.has_details, num_dropped=dropped
            ):
                found[request_id] = broken
        return found


def files_at(path: Path) -> list[Lines]:
    """The files of a `--trace-dir`, or one file. Raises ConfigError for what cannot be read."""
    try:
        paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not paths:
            raise ConfigError(
                f"{path} has no *.jsonl file; name what `baton serve --trace-dir` wrote to"
            )
        return [Lines(one.name, one.read_bytes()) for one in paths]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def read_trace(files: Sequence[Lines]) -> ReadTrace:
    """Events of all files. Raises ConfigError for a file that is no trace at all."""
    trace = ReadTrace(files=[file.name for file in files])
    events: list[TraceEvent] = []
    with _no_collection():
        for file in files:
            events += _read_file(file, trace)
        events.sort(key=_time)
        by_request = trace.by_request
        for event in events:
            if not event.request_id:
                trace.of_no_request.append(event)
            elif event.request_id in by_request:
                by_request[event.request_id].append(event)
            else:
                by_request[event.request_id] = [event]
    trace.num_events = len(events)
    trace.has_details = any(event.name in DETAILS for event in events)
    _check_fleet(trace)
    return trace


def _time(event: TraceEvent) -> int:
    return event.at_us


@contextmanager
def _no_collection() -> Iterator[None]:
    """A million events are no garbage: looking for some among them takes longer than reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_file(file: Lines, trace: ReadTrace) -> list[TraceEvent]:
    decoder = msgspec.json.Decoder(TraceEvent)
    try:
        events: list[TraceEvent] = decoder.decode_lines(file.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        events = _line_by_line(file, decoder, trace)
    else:
        if file.data and not file.data.endswith(b"\n"):
            trace.violations.append(_cut(file, file.data.count(b"\n") + 1))
    last: dict[str, int] = {}
    for event in events:
        is_back = event.at_us < last.get(event.place, event.at_us)
        if is_back and event.name != "process_started" and TOLD not in event.data:
            text = (
                f"{file.name}: `{event.name}` at {event.place} ({event.at_us} us) comes "
                f"{last[event.place] - event.at_us} us before the line above it"
            )
            trace.violations.append(
                Violation(
                    fault=Fault.REORDERED,
                    rule=Rule.CLOCK,
                    text=text,
                    request_id=event.request_id,
                    event=event,
                )
            )
        last[event.place] = event.at_us
    return events


def _line_by_line(
    file: Lines, decoder: msgspec.json.Decoder[TraceEvent], trace: ReadTrace
) -> list[TraceEvent]:
    """The slow way, for a file in which some line is none: that line is named, and skipped."""
    events, lines = [], file.data.split(b"\n")
    unread: tuple[int, str] | None = None
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            events.append(decoder.decode(line))
        except msgspec.ValidationError as error:
            unread = unread or (number, str(error))
            trace.violations.append(
                Violation(
                    fault=Fault.FOREIGN,
                    rule=Rule.LINE,
                    text=f"{file.name}:{number} is no trace event: {error}",
                )
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            unread = unread or (number, str(error))
            trace.violations.append(_cut(file, number))
    if unread and not events:
        raise ConfigError(_foreign(file, *unread))
    return events


def _foreign(file: Lines, number: int, reason: str) -> str:
    first = file.data.split(b"\n", number)[number - 1][:_MAX_SHOWN_CHARS]
    return (
        f"foreign: {file.name}:{number} is no trace event ({reason}): "
        f"{first.decode('utf-8', 'replace')!r}; give what `baton serve --trace-dir` wrote, or an "
        "OTLP export in JSON"
    )


def _cut(file: Lines, number: int) -> Violation:
    text = f"{file.name}:{number} ends in the middle of an event"
    return Violation(fault=Fault.TRUNCATED, rule=Rule.LINE, text=text)


def _check_fleet(trace: ReadTrace) -> None:
    """Events of no request; and a trace of workers alone says nothing of any request."""
    for event in trace.of_no_request:
        kind = kind_of(event.place, event.name)
        defect = field_defect(kind, event.data) if kind else "is not an event of that process"
        if defect:
            text = f"`{event.name}` at {event.place} ({event.at_us} us) {defect}"
            trace.violations.append(
                Violation(fault=Fault.FOREIGN, rule=Rule.VOCABULARY, text=text, event=event)
            )
    requests = trace.by_request.values()
    if requests and not any(e.place == ROUTER_PLACE for events in requests for e in events):
        raise ConfigError(
            "truncated: the trace has events of workers and none of the router; give the whole "
            "folder of --trace-dir"
        )
