"""`baton trace`: read, check, fold, and say what bound the requests."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from baton.errors import ConfigError
from baton.telemetry.gateway_answer import fetch
from baton.telemetry.trace.otlp import from_otlp, is_otlp
from baton.telemetry.trace.reading import Lines, ReadTrace, files_at, read_trace
from baton.telemetry.trace.story import OPEN, Story, is_request, tell
from baton.telemetry.trace.summary import Summary, summarize
from baton.telemetry.trace.tables import comparison, report
from baton.telemetry.trace.violation import Violation
from baton.telemetry.trace.waterfall import waterfall

_MAX_SHOWN = 20
TRACES_PATH = "/traces"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that was read, and what of it kept the contract."""

    trace: ReadTrace
    stories: tuple[Story, ...]
    violations: tuple[Violation, ...]


def read_source(source: str) -> Told:
    """A folder, a file or the address of a running Baton. Raises ConfigError for anything else.

    A request that breaks the contract is named and not folded.
    """
    files = _files(source)
    trace = read_trace([from_otlp(one) if is_otlp(one.data) else one for one in files])
    broken = trace.check()
    kept = [
        tell(events)
        for request_id, events in trace.by_request.items()
        if request_id not in broken and is_request(events)
    ]
    found = [*trace.violations, *(one for many in broken.values() for one in many)]
    return Told(trace=trace, stories=tuple(kept), violations=tuple(found))


def _files(source: str) -> list[Lines]:
    if "://" in source:
        try:
            return [Lines(source, fetch(source, TRACES_PATH))]
        except ConfigError as error:
            text = str(error).removeprefix("--url ")  # of other verbs; here it is the argument
            raise ConfigError(f"trace {text}") from error
    return files_at(Path(source))


def trace_command(
    source: str,
    console: Console,
    *,
    slowest: int = 0,
    request: str = "",
    as_json: bool = False,
) -> int:
    """Print the report of one trace; returns 1 where something breaks the contract."""
    told = read_source(source)
    shown = _chosen(told.stories, slowest, request)
    if as_json:
        _print_json(console, told, shown)
    else:
        _print_head(console, told)
        for part in report(summarize(told.stories)) if not request else ():
            console.print(part, highlight=False)
        for story in shown:
            for line in ["", *waterfall(story)]:
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 1 if told.violations else 0


def compare_command(first: str, second: str, console: Console, *, as_json: bool = False) -> int:
    """Print two traces side by side; returns 1 where one breaks the contract."""
    told = [read_source(one) for one in (first, second)]
    sums = [summarize(one.stories) for one in told]
    if as_json:
        console.print_json(msgspec.json.encode(sums).decode())
        return 0
    for one in told:
        _print_head(console, one)
    for part in comparison(sums[0], sums[1], (first, second)):
        console.print(part, highlight=False)
    return 1 if any(one.violations for one in told) else 0


def _chosen(stories: Sequence[Story], slowest: int, request: str) -> list[Story]:
    if request:
        found = [one for one in stories if one.request_id.startswith(request)]
        if not found:
            raise ConfigError(f"--request {request!r}: no whole request of that id in this trace")
        return found
    if not slowest and len(stories) == 1:
        return list(stories)
    timed = [one for one in stories if one.tiling]
    timed.sort(key=lambda one: -(one.tiling.total_us if one.tiling else 0))
    return timed[:slowest]


def _print_head(console: Console, told: Told) -> None:
    trace = told.trace
    places = sorted({e.place for events in trace.by_request.values() for e in events})
    text = f"{trace.num_events} events of {len(trace.by_request)} requests and copies at "
    console.print(f"{text}{', '.join(places)}", highlight=False, soft_wrap=True)
    if trace.num_dropped:
        console.print(f"{trace.num_dropped} events could not be written by their processes")
    for worker, num in trace.lost.items():
        text = f"{worker} died before it had told all: its last steps of {num} may be missing"
        console.print(text, highlight=False, soft_wrap=True)
    if not trace.has_details:
        console.print("no events of single chunks: coverage and overlap are not seen")
    if len(set(trace.hosts.values())) > 1:
        console.print("processes on several hosts: their clocks are not compared")
    for one in told.violations[:_MAX_SHOWN]:
        console.print(f"! {one}", style="red", highlight=False, soft_wrap=True, markup=False)
    more = len(told.violations) - _MAX_SHOWN
    if more > 0:
        console.print(f"! and {more} more", style="red")
    num_open = sum(one.state == OPEN for one in told.stories)
    if num_open:
        console.print(f"{num_open} requests had not ended when the trace did", highlight=False)


def _print_json(console: Console, told: Told, shown: Sequence[Story]) -> None:
    body: dict[str, Summary | list[str] | list[Story] | int] = {
        "num_events": told.trace.num_events,
        "violations": [str(one) for one in told.violations],
        "summary": summarize(told.stories),
        "requests": list(shown),
    }
    console.print_json(msgspec.json.encode(body).decode())
