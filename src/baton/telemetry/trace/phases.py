"""Where the time of one request went: phases that tile it without gap or overlap.

A boundary is the time of an event; one that is absent, or that a skewed or late report puts before
the boundary above it, is moved to that one, so that phases are never negative and always add up.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.vocabulary import BY_LEGS, OBSERVED, ROUTER_PLACE


class Phase(StrEnum):
    """The parts of the time to the first token, in their order."""

    ARRIVAL = "arrival"
    """HTTP request read until the router has it: body, checks, tokens."""
    RETRY = "retry"
    """Attempts that failed, until the one that answered was routed."""
    FETCH = "fetch"
    """A copy of history that came first."""
    WAIT = "wait"
    """At the router, until some pair has room."""
    ROUTE = "route"
    """Reservation and grant, until the prompt is in its worker's queue."""
    QUEUE = "queue"
    """In that queue, until its first step starts."""
    PREFILL = "prefill"
    """Until its last row is computed and the first token drawn."""
    PREFILL_LEG = "prefill_leg"
    """Both of them at a server that does not tell one from the other: until its leg answered."""
    TRANSFER = "transfer"
    """What is left to move then: the exposed transfer, until every chunk is visible."""
    VALIDATE = "validate"
    """The manifest's way, and its checks."""
    PUBLISH = "publish"
    """The compare-and-swap that makes it readable."""
    ADMISSION = "admission"
    """Until decode has taken it."""
    DECODE_LEG = "decode_leg"
    """What a server does not tell apart until it answers: of the steps above those that nobody
    reported, and the first step of decode; all of them where the request had one leg."""
    FIRST_TOKEN = "first_token"
    """The token's way to the router, to text, and into the client's connection."""


PHASES = tuple(Phase)
_LATE = PHASES[PHASES.index(Phase.ROUTE) :]
_STEPS: Mapping[Phase, tuple[bool, str]] = {
    Phase.ROUTE: (False, "prefill_queued"),
    Phase.QUEUE: (False, "prefill_running"),
    Phase.PREFILL: (False, "prefill_done"),
    Phase.TRANSFER: (False, "all_visible"),
    Phase.VALIDATE: (False, "validated"),
    Phase.PUBLISH: (False, "published"),
    Phase.ADMISSION: (False, "admitted"),
}
"""By which event of the generation that answered each phase ends."""
_LEGS: Mapping[Phase, tuple[bool, str]] = {
    Phase.ROUTE: (True, "leg_sent"),
    Phase.PREFILL_LEG: (True, "prefill_answered"),
    Phase.TRANSFER: (False, "all_visible"),
    Phase.VALIDATE: (False, "validated"),
    Phase.PUBLISH: (False, "published"),
    Phase.DECODE_LEG: (True, "decode_answered"),
}
"""The same of a generation whose servers are observed by their legs; the steps between are a
connector's, if it says them."""
_UNSURE = frozenset((Phase.TRANSFER, Phase.VALIDATE, Phase.PUBLISH))
"""Phases of legs that only some connectors report: an absent one is no sign of waiting."""


class Tiling(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of one request. They add up to `total_us`, exactly."""

    start_us: int
    """When the HTTP request had been read, on the trace's clock."""
    durations_us: tuple[int, ...]
    """One of each of `PHASES`."""
    generation: int
    """The one that answered, or the last one."""
    is_answered: bool
    """True when it ends at the first token; else at the end of the request."""

    @property
    def total_us(self) -> int:
        """Time to first token, or to the end of a request that never had one."""
        return sum(self.durations_us)

    def of(self, phase: Phase) -> int:
        """Duration of one phase in microseconds."""
        return self.durations_us[PHASES.index(phase)]

    def spans(self) -> list[tuple[Phase, int, int]]:
        """Each phase that took time, with its start and end."""
        spans, at_us = [], self.start_us
        for phase, duration_us in zip(PHASES, self.durations_us, strict=True):
            if duration_us:
                spans.append((phase, at_us, at_us + duration_us))
            at_us += duration_us
        return spans


def tile(events: Sequence[TraceEvent]) -> Tiling | None:
    """Cut one request at its events, given by time; None while it has neither token nor end."""
    marks = _Marks(events)
    end_us = marks.end_us
    if end_us is None:
        return None
    at_us, durations = marks.start_us, dict.fromkeys(PHASES, 0)
    for phase, until_us in marks.boundaries():
        until_us = min(max(at_us, until_us), end_us)
        durations[phase] += until_us - at_us
        at_us = until_us
    durations[marks.last_phase] += max(0, end_us - at_us)
    return Tiling(
        start_us=marks.start_us,
        durations_us=tuple(durations.values()),
        generation=marks.generation,
        is_answered=marks.is_answered,
    )


class _Marks:
    """The times of one request's events that phases end by."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        at: dict[tuple[int, bool, str], int] = {}
        routes: list[TraceEvent] = []
        written = ended = answer = arrived = received = None
        for event in events:
            is_router = event.place == ROUTER_PLACE
            at.setdefault((event.generation, is_router, event.name), event.at_us)
            if not is_router:
                continue
            match event.name:
                case "routed":
                    routes.append(event)
                case "received" if received is None:
                    received = event.at_us - event.number("waited_us")
                case "arrived" if arrived is None:
                    arrived = event.at_us
                case "first_token" if answer is None:
                    answer = event
                case "first_written" if written is None:
                    written = event.at_us
                case "ended" | "answered":
                    ended = event.at_us
        self._at = at
        self._routes = routes
        self._arrived_us = arrived if arrived is not None else events[0].at_us
        self.start_us = received if received is not None else self._arrived_us
        self.is_answered = answer is not None
        last = routes[-1].generation if routes else 0
        self._ends_by = _STEPS
        self.generation = answer.generation if answer is not None else last
        first_us = written if written is not None or answer is None else answer.at_us
        self.end_us = first_us if self.is_answered else ended
        self._mine = next((r for r in routes if r.generation == self.generation), None)
        if self._mine is not None and self._mine.text(OBSERVED) == BY_LEGS:
            self._ends_by = _LEGS

    def boundaries(self) -> list[tuple[Phase, int]]:
        """Ends of the phases in order; the time after the last of them is `last_phase`'s."""
        found = [(Phase.ARRIVAL, self._arrived_us)]
        mine = self._mine
        if mine is None:
            return found
        if mine is not self._routes[0]:
            found.append((Phase.WAIT, self._routes[0].at_us))
            found.append((Phase.RETRY, self._last_failure_us(mine)))
        fetching = self._at.get((mine.generation - 1, True, "fetching"))
        if fetching is not None:
            found.append((Phase.WAIT, fetching))
            found.append((Phase.FETCH, mine.at_us))
        found.append((Phase.WAIT, mine.at_us))
        for phase, step in self._ends_by.items():
            at_us = self._at.get((self.generation, *step))
            if at_us is not None:
                found.append((phase, at_us))
        return found

    def _last_failure_us(self, mine: TraceEvent) -> int:
        """When the last attempt before this one had failed."""
        failed = [at for (g, _, n), at in self._at.items() if n == "attempt_failed"]
        earlier = [at for at in failed if at <= mine.at_us]
        return max(earlier, default=mine.at_us)

    @property
    def last_phase(self) -> Phase:
        """What was going on when the first token, or the end, came."""
        if self.is_answered:
            return Phase.FIRST_TOKEN
        if not self._routes:
            return Phase.WAIT
        for phase in _LATE:
            step = self._ends_by.get(phase)
            if step is None and phase is not Phase.FIRST_TOKEN:
                continue
            if step is None or (self.generation, *step) not in self._at:
                if self._ends_by is _LEGS and phase in _UNSURE:
                    continue
                if phase in (Phase.TRANSFER, Phase.PREFILL_LEG) and self._is_past(phase):
                    continue
                return phase
        return Phase.FIRST_TOKEN

    def _is_past(self, phase: Phase) -> bool:
        """A later step was reached: where nothing moves, nothing becomes visible."""
        if phase is Phase.PREFILL_LEG and self._mine is not None:
            return self._mine.text("prefill") == self._mine.text("decode")  # it has one leg
        steps = list(self._ends_by.values())
        later = steps[list(self._ends_by).index(phase) + 1 :]
        return any((self.generation, *step) in self._at for step in later)
