"""Where the time of each request went, from the events of a deployment's processes.

Route, prefill (queue and compute), exposed handoff, decode: the four tile the time from arrival at
the router to the last token at the decode worker. All processes of a host share one clock.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

_MARKS = ("arrived", "prefill_queued", "prefill_done", "admitted", "finished")


class _Event(msgspec.Struct, frozen=True):
    at_us: int
    name: str
    request_id: str
    generation: int
    data: dict[str, int | float | str]


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one finished request, in microseconds; of its last attempt, but for `lost_us`.

    `lost_us` is the time that failed attempts took: from the first route to the last one.
    """

    route_us: int
    prefill_us: int
    exposed_us: int
    decode_us: int
    lost_us: int
    num_failures: int

    @property
    def total_us(self) -> int:
        """From arrival to the last token."""
        parts = self.route_us + self.prefill_us + self.exposed_us + self.decode_us
        return parts + self.lost_us


class MeanPhases(msgspec.Struct, frozen=True, kw_only=True):
    """Means over requests, in microseconds."""

    num: int
    route_us: float
    prefill_us: float
    exposed_us: float
    decode_us: float
    lost_us: float
    failures_per_request: float


def read_phases(folder: Path, since_us: int = 0) -> list[Phases]:
    """The phases of every request that arrived after `since_us` and finished."""
    by_request: dict[str, list[_Event]] = defaultdict(list)
    for event in _events(folder):
        by_request[event.request_id].append(event)
    found = (_phases(events, since_us) for events in by_request.values())
    return [phases for phases in found if phases is not None]


def mean_phases(phases: Sequence[Phases]) -> MeanPhases:
    """Their means; `phases` is not empty."""
    return MeanPhases(
        num=len(phases),
        route_us=fmean(p.route_us for p in phases),
        prefill_us=fmean(p.prefill_us for p in phases),
        exposed_us=fmean(p.exposed_us for p in phases),
        decode_us=fmean(p.decode_us for p in phases),
        lost_us=fmean(p.lost_us for p in phases),
        failures_per_request=fmean(p.num_failures for p in phases),
    )


def _events(folder: Path) -> Iterable[_Event]:
    decoder = msgspec.json.Decoder(_Event)
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue  # a line that was cut short when its process was stopped


def _phases(events: list[_Event], since_us: int) -> Phases | None:
    events.sort(key=lambda event: event.at_us)
    generation = max(event.generation for event in events)
    at: dict[str, int] = {}
    for event in events:
        if event.name == "arrived" or event.generation == generation:
            at.setdefault(event.name, event.at_us)
    if not all(mark in at for mark in _MARKS) or at["arrived"] < since_us:
        return None
    routes = [event.at_us for event in events if event.name == "routed"]
    lost_us = routes[-1] - routes[0] if routes else 0
    return Phases(
        route_us=at["prefill_queued"] - at["arrived"] - lost_us,
        prefill_us=at["prefill_done"] - at["prefill_queued"],
        exposed_us=max(0, at["admitted"] - at["prefill_done"]),
        decode_us=at["finished"] - at["admitted"],
        lost_us=lost_us,
        num_failures=sum(event.name == "attempt_failed" for event in events),
    )
