"""The last requests in memory: their events as they come, a story once each has ended.

Events of workers arrive later than those of the router, so a request is told only some time after
its end. Everything is bounded: requests, events of one request, and how long one may stay open.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.story import Story, is_request, tell
from baton.telemetry.trace.vocabulary import DETAILS, ROUTER_PLACE

SETTLE_US = 1_000_000
"""After its end, how long the last events of a request may take to arrive."""
_MAX_EVENTS = 512
_OPEN_PER_TOLD = 4
LEAST_OPEN = 16_384
"""Requests that may be under way whatever is kept: 1,000 a second that answer for 10 s each."""


class Recent:
    """One request that was told."""

    __slots__ = ("events", "story")

    def __init__(self, story: Story, events: list[TraceEvent]) -> None:
        self.story = story
        self.events = events


class TraceHistory:
    """Takes events of every place; hands each story to `on_told` once."""

    def __init__(
        self,
        num_requests: int,
        on_told: Callable[[Recent], None],
        *,
        least_open: int = LEAST_OPEN,
    ) -> None:
        self._num_requests = num_requests
        self._max_open = max(least_open, _OPEN_PER_TOLD * num_requests)
        self._on_told = on_told
        self._open: OrderedDict[str, list[TraceEvent]] = OrderedDict()
        self._ended: deque[tuple[int, str]] = deque()
        self._told: OrderedDict[str, Recent] = OrderedDict()
        self.num_dropped = 0
        """Events beyond a bound: their requests are told in part, or not at all."""
        self.num_late = 0
        """Events of requests that were told already; they change no story."""

    def take(self, event: TraceEvent, now_us: int) -> None:
        """Take one event; of no request, or of a single chunk, it is not kept."""
        if not event.request_id or event.name in DETAILS:
            return
        if event.request_id in self._told:
            self.num_late += 1
            return
        events = self._open.get(event.request_id)
        if events is None:
            events = self._open[event.request_id] = []
            if len(self._open) > self._max_open:
                self.num_dropped += len(self._open.popitem(last=False)[1])
        if len(events) >= _MAX_EVENTS:
            self.num_dropped += 1
            return
        events.append(event)
        if event.place == ROUTER_PLACE and event.name in ("ended", "copy_ended"):
            self._ended.append((now_us + SETTLE_US, event.request_id))

    def settle(self, now_us: int) -> None:
        """Tell whoever has ended long enough ago."""
        while self._ended and self._ended[0][0] <= now_us:
            _, request_id = self._ended.popleft()
            events = self._open.pop(request_id, None)
            if events is not None and is_request(events):
                self._tell(events)

    def _tell(self, events: list[TraceEvent]) -> None:
        events.sort(key=lambda event: event.at_us)
        recent = Recent(tell(events), events)
        self._told[recent.story.request_id] = recent
        if len(self._told) > self._num_requests:
            self._told.popitem(last=False)
        self._on_told(recent)

    def lose(self, worker_id: str, since_us: int, now_us: int) -> None:
        """A life of a worker is over, and what it had not told since then nobody will hear.

        Every request with an attempt there that was not over by then is marked: it may be without
        steps of that worker up to that attempt's generation, and of no other.
        """
        ended = [one.events for one in self._told.values() if one.events[-1].at_us >= since_us]
        for events in (*self._open.values(), *ended):
            there = [event.generation for event in events if _goes_to(worker_id, event)]
            if there:
                mark = TraceEvent(
                    at_us=now_us,
                    place=ROUTER_PLACE,
                    name="events_lost",
                    request_id=events[0].request_id,
                    generation=max(there),
                    data={"worker": worker_id},
                )
                events.append(mark)

    # -- look ----------------------------------------------------------------------------------

    @property
    def num_open(self) -> int:
        """Requests and copies that were not told yet."""
        return len(self._open)

    @property
    def num_ended(self) -> int:
        """Requests and copies that have ended and wait for their last events."""
        return len(self._ended)

    def last(self, num: int) -> list[Story]:
        """The stories of the last requests, the newest first."""
        newest = reversed(self._told.values())
        return [recent.story for recent, _ in zip(newest, range(num), strict=False)]

    def find(self, request_id: str) -> Recent | None:
        """One that is still kept."""
        return self._told.get(request_id)

    def events(self) -> Iterable[TraceEvent]:
        """All events that are kept of requests that were told, by time."""
        kept = [event for recent in self._told.values() for event in recent.events]
        return sorted(kept, key=lambda event: event.at_us)


def _goes_to(worker_id: str, event: TraceEvent) -> bool:
    """Does it begin an attempt, or a copy, to which that worker is a party?"""
    if event.place != ROUTER_PLACE:
        return False
    fields = {"routed": ("prefill", "decode"), "copy_started": ("source", "destination")}
    return any(event.text(field) == worker_id for field in fields.get(event.name, ()))
