"""The contract of a trace, as tables, and the check of one request against it (0x0F).

One identity and generation per transfer, every chunk and layer visible before the one publication,
each step after the step it needs. Times of different hosts are never compared.
"""

from collections.abc import Mapping, Sequence

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.violation import Fault, Rule, Violation
from baton.telemetry.trace.vocabulary import (
    BY_LEGS,
    CONNECTOR_STEPS,
    EVENTS_LOST,
    LEG_STEPS,
    OBSERVED,
    ROUTER_PLACE,
    field_defect,
    kind_of,
)

Step = tuple[bool, str]
"""Whether the router's process says it, and its name."""
_ROUTER, _WORKER = True, False
_NEEDS: dict[Step, Step] = {
    (_ROUTER, "published"): (_WORKER, "published"),
    (_ROUTER, "first_token"): (_ROUTER, "published"),
    (_ROUTER, "attempt_failed"): (_ROUTER, "routed"),
    (_WORKER, "prefill_queued"): (_WORKER, "reserved"),
    (_WORKER, "prefill_running"): (_WORKER, "prefill_queued"),
    (_WORKER, "prefill_done"): (_WORKER, "prefill_running"),
    (_WORKER, "validated"): (_WORKER, "reserved"),
    (_WORKER, "published"): (_WORKER, "validated"),
    (_WORKER, "admitted"): (_WORKER, "published"),
    (_WORKER, "inserted"): (_WORKER, "published"),
    (_WORKER, "finished"): (_WORKER, "admitted"),
}
"""The step that must come before, in the same generation."""
_LEG_NEEDS: dict[Step, Step] = {
    (_ROUTER, "leg_sent"): (_ROUTER, "routed"),
    (_ROUTER, "prefill_answered"): (_ROUTER, "leg_sent"),
    (_ROUTER, "decode_answered"): (_ROUTER, "leg_sent"),
    (_ROUTER, "first_token"): (_ROUTER, "decode_answered"),
    (_ROUTER, "attempt_failed"): (_ROUTER, "routed"),
    (_WORKER, "all_visible"): (_WORKER, "reserved"),
    (_WORKER, "validated"): (_WORKER, "all_visible"),
    (_WORKER, "published"): (_WORKER, "validated"),
}
"""The same where servers are observed by their legs. A publication that a connector reports still
needs every step before it, and comes before the answer that was computed on it."""
_OF_PREFILL = frozenset(("prefill_queued", "prefill_running", "prefill_done"))
"""What the worker says that prefills; every other needed step is the decode worker's."""
_ONCE = frozenset([(_ROUTER, "arrived"), (_ROUTER, "ended"), (_ROUTER, "copy_started")])


class Clocks:
    """Which places share a clock: those whose processes named the same host, or none at all."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        self._hosts = hosts

    def are_one(self, place: str, other: str) -> bool:
        """True where times of the two may be compared."""
        return self._hosts.get(place, "") == self._hosts.get(other, "")


def check_request(
    events: Sequence[TraceEvent], clocks: Clocks, *, has_details: bool, num_dropped: int = 0
) -> list[Violation]:
    """What one request, or one copy, breaks; `events` are all of its id, by time.

    `has_details`: the trace has an event for every chunk, so that coverage can be seen.
    `num_dropped`: events that the router could not write, so that its words may be missing.
    """
    for event in events:
        kind = kind_of(event.place, event.name)
        defect = field_defect(kind, event.data) if kind else "is not an event of that process"
        if defect:
            return [_of(event, Fault.FOREIGN, Rule.VOCABULARY, f"{_shown(event)} {defect}")]
    return _Check(events, clocks, has_details, num_dropped).run()


class _Check:
    """One pass over the events of one id; stops at the first violation of each generation."""

    def __init__(
        self, events: Sequence[TraceEvent], clocks: Clocks, has_details: bool, num_dropped: int
    ) -> None:
        self._num_dropped = num_dropped
        self._events = events
        self._clocks = clocks
        self._has_details = has_details
        self._places: dict[int, tuple[str, str]] = {}
        self._first: dict[tuple[int, Step], TraceEvent] = {}
        self._seen: set[tuple[int, Step]] = set()
        self._visible: dict[int, dict[int, range]] = {}
        self._by_legs: set[int] = set()
        self._lost: dict[str, int] = {}
        self._published = 0
        self._broken: set[int] = set()
        self._found: list[Violation] = []

    def run(self) -> list[Violation]:
        self._look_ahead()
        if not self._is_known():
            worker = next(e for e in self._events if e.place != ROUTER_PLACE)
            if self._num_dropped:
                text = (
                    f"{_shown(worker)} is of a request without its arrival; the router could not "
                    f"write {self._num_dropped} events"
                )
                return [_of(worker, Fault.TRUNCATED, Rule.IDENTITY, text)]
            text = f"{_shown(worker)} is of a request that the router never took in"
            return [_of(worker, Fault.FOREIGN, Rule.IDENTITY, text)]
        for event in self._events:
            self._take(event)
        return self._found

    def _look_ahead(self) -> None:
        for event in self._events:
            is_router = event.place == ROUTER_PLACE
            if is_router and event.name == EVENTS_LOST:
                worker = event.text("worker")
                self._lost[worker] = max(event.generation, self._lost.get(worker, 0))
            self._first.setdefault((event.generation, (is_router, event.name)), event)
            if is_router and event.name == "routed":
                self._places[event.generation] = (event.text("prefill"), event.text("decode"))
                if event.text(OBSERVED) == BY_LEGS:
                    self._by_legs.add(event.generation)
            elif is_router and event.name == "copy_started":
                self._places[event.generation] = (event.text("source"), event.text("destination"))

    def _is_known(self) -> bool:
        if not any(event.place != ROUTER_PLACE for event in self._events):
            return True
        known = ((_ROUTER, "arrived"), (_ROUTER, "copy_started"))
        return any(step in known for _, step in self._first)

    def _take(self, event: TraceEvent) -> None:
        generation, is_router = event.generation, event.place == ROUTER_PLACE
        step = (is_router, event.name)
        if generation in self._broken:
            return
        if not is_router and not self._belongs(event):
            return
        if not self._is_observed_so(event, is_router):
            return
        need = (_LEG_NEEDS if generation in self._by_legs else _NEEDS).get(step)
        if need is not None and (generation, need) not in self._seen:
            self._miss(event, need)
        if generation in self._broken:
            return
        if step in _ONCE and any((g, step) in self._seen for g in range(generation + 1)):
            text = f"{_shown(event)} comes a second time"
            self._break(event, Fault.DUPLICATE, Rule.END, text)
        if event.name == "chunk_visible":
            start = event.number("layer_start")
            layers = range(start, start + event.number("num_layers"))
            self._visible.setdefault(generation, {})[event.number("chunk_id")] = layers
        elif event.name == "published" and not is_router:
            self._publish(event)
        self._seen.add((generation, step))

    def _belongs(self, event: TraceEvent) -> bool:
        """Is this worker a party of this generation?"""
        places = self._places.get(event.generation)
        if places is None:
            text = f"{_shown(event)} is of a generation that the router never routed"
        elif event.place not in places:
            text = f"{_shown(event)}, but that generation runs on {' and '.join(places)}"
        else:
            return True
        self._break(event, Fault.MIXED_GENERATION, Rule.GENERATION, text)
        return False

    def _is_observed_so(self, event: TraceEvent, is_router: bool) -> bool:
        """Does an event of this kind exist where the generation's servers are seen that way?"""
        by_legs = event.generation in self._by_legs
        if is_router:
            is_foreign = event.name in LEG_STEPS and not by_legs
            is_foreign = is_foreign or (event.name == "published" and by_legs)
        else:
            is_foreign = by_legs and event.name not in CONNECTOR_STEPS
        if is_foreign:
            seen = "by its legs" if by_legs else "by its steps"
            text = f"{_shown(event)} is of a generation that is observed {seen}"
            self._break(event, Fault.FOREIGN, Rule.OBSERVATION, text)
        return not is_foreign

    def _miss(self, event: TraceEvent, need: Step) -> None:
        """The needed step is not before this event: it is later, or nowhere."""
        later = self._first.get((event.generation, need))
        wanted = f"`{need[1]}` of " + ("the router" if need[0] else "a worker")
        if later is None and self._is_lost(event.generation, need):
            self._seen.add((event.generation, need))
        elif later is None:
            text = f"{_shown(event)} is without {wanted}"
            self._break(event, Fault.TRUNCATED, Rule.WHOLE, text)
        elif later.at_us == event.at_us and later.place != event.place:
            self._seen.add((event.generation, need))
        elif self._clocks.are_one(later.place, event.place):
            text = f"{_shown(event)} is {later.at_us - event.at_us} us before {wanted}"
            self._break(event, Fault.REORDERED, Rule.ORDER, text)

    def _is_lost(self, generation: int, step: Step) -> bool:
        """Did the one worker that says this step die before it had told what it traced?"""
        prefill, decode = self._places.get(generation, ("", ""))
        is_router, name = step
        worker = (prefill or decode) if name in _OF_PREFILL else decode
        return not is_router and generation <= self._lost.get(worker, -1)

    def _publish(self, event: TraceEvent) -> None:
        generation = event.generation
        if (generation, (_WORKER, "published")) in self._seen:
            text = f"{_shown(event)} publishes the generation again"
            self._break(event, Fault.DUPLICATE, Rule.PUBLICATION, text)
        elif generation < self._published:
            text = f"{_shown(event)} comes after generation {self._published} was published"
            self._break(event, Fault.MIXED_GENERATION, Rule.PUBLICATION, text)
        elif self._is_late(event):
            text = f"{_shown(event)} comes after the decode server had answered"
            self._break(event, Fault.REORDERED, Rule.PUBLICATION, text)
        elif not self._has_details or generation in self._by_legs:
            pass
        elif missing := self._missing(event):
            text = f"{_shown(event)} while {missing}"
            self._break(event, *self._why_missing(event), text)
        self._published = max(self._published, generation)

    def _is_late(self, event: TraceEvent) -> bool:
        """By legs: was the answer there before what it would have been computed on?"""
        answered = self._first.get((event.generation, (_ROUTER, "decode_answered")))
        if answered is None or not self._clocks.are_one(answered.place, event.place):
            return False
        return answered.at_us < event.at_us

    def _missing(self, event: TraceEvent) -> str:
        visible = self._visible.get(event.generation, {})
        num_chunks = event.number("num_chunks")
        if len(visible) != num_chunks:
            return f"{len(visible)} of {num_chunks} chunks were visible"
        layers = {layer for covered in visible.values() for layer in covered}
        absent = set(range(event.number("num_layers"))) - layers if num_chunks else set()
        return f"layer {min(absent)} was not visible" if absent else ""

    def _why_missing(self, event: TraceEvent) -> tuple[Fault, Rule]:
        """Does it come later, stand in another generation, or not at all?"""
        chunks = [e for e in self._events if e.name == "chunk_visible" and e.place == event.place]
        if any(e.generation == event.generation and e.at_us > event.at_us for e in chunks):
            return Fault.REORDERED, Rule.COVERAGE
        if any(e.generation != event.generation for e in chunks):
            return Fault.MIXED_GENERATION, Rule.COVERAGE
        return Fault.TRUNCATED, Rule.COVERAGE

    def _break(self, event: TraceEvent, fault: Fault, rule: Rule, text: str) -> None:
        self._broken.add(event.generation)
        self._found.append(_of(event, fault, rule, text))


def _of(event: TraceEvent, fault: Fault, rule: Rule, text: str) -> Violation:
    return Violation(fault=fault, rule=rule, text=text, request_id=event.request_id, event=event)


def _shown(event: TraceEvent) -> str:
    of = f" of {event.request_id} generation {event.generation}" if event.request_id else ""
    return f"`{event.name}` at {event.place}{of} ({event.at_us} us)"
