"""What one transfer did and how much of it was hidden: work, wall, overlap, exposed stall.

Work is the sum of all intervals, wall their union, overlap the difference: time in which at least
two things ran at once, counted once for each beyond the first.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.vocabulary import ROUTER_PLACE


class Activity(StrEnum):
    """What an interval was spent on."""

    REGISTER = "register"
    """Until the destination let the transfer in."""
    COMPUTE = "compute"
    """Layers of the prompt, or its prefill as a whole where layers were not timed."""
    NETWORK = "network"
    """One attempt to move one chunk."""
    SETTLE = "settle"
    """A chunk from its arrival until the destination has read it back."""
    PUBLISH = "publish"


class Interval(msgspec.Struct, frozen=True):
    """Some work, from start to end in microseconds."""

    activity: Activity
    start_us: int
    end_us: int

    @property
    def duration_us(self) -> int:
        """Its length."""
        return self.end_us - self.start_us


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one transfer, in microseconds."""

    intervals: tuple[Interval, ...] = ()
    exposed_us: int = 0
    """max(0, publish_end - decode_ready): from when only the handoff was missing."""
    num_retries: int = 0
    """Moves of chunks that failed."""

    @property
    def work_us(self) -> int:
        """Sum of all intervals."""
        return sum(one.duration_us for one in self.intervals)

    @property
    def wall_us(self) -> int:
        """Length of their union."""
        return union_us(self.intervals)

    @property
    def overlap_us(self) -> int:
        """What ran beside something else."""
        return self.work_us - self.wall_us

    def by_activity(self) -> dict[Activity, int]:
        """Sum of each kind that there was."""
        sums: dict[Activity, int] = {}
        for one in self.intervals:
            sums[one.activity] = sums.get(one.activity, 0) + one.duration_us
        return sums


def union_us(intervals: Iterable[Interval]) -> int:
    """How long at least one of them ran."""
    total_us, end_us = 0, 0
    for one in sorted(intervals, key=lambda one: one.start_us):
        start_us = max(one.start_us, end_us)
        if one.end_us > start_us:
            total_us += one.end_us - start_us
            end_us = one.end_us
    return total_us


_TIMED = {
    "authorized": Activity.REGISTER,
    "layer_ready": Activity.COMPUTE,
    "chunk_moved": Activity.NETWORK,
    "all_visible": Activity.NETWORK,
    "published": Activity.PUBLISH,
}
"""Events whose own `duration_us` says how long they took; that of `all_visible` is there only
where a connector tells of the transfer as a whole."""


def fold_work(events: Sequence[TraceEvent], generation: int) -> Work:
    """The account of one generation; `events` are its request's, by time."""
    intervals: list[Interval] = []
    arrived: dict[int, int] = {}
    at: dict[str, int] = {}
    num_retries = 0
    for event in events:
        if event.generation != generation:
            continue
        if event.place == ROUTER_PLACE:
            if event.name == "prefill_answered":  # the nearest to its end that a gateway sees
                at.setdefault("prefill_done", event.at_us)
            continue
        at.setdefault(event.name, event.at_us)
        activity, duration_us = _TIMED.get(event.name), event.number("duration_us")
        if activity is not None and duration_us:
            intervals.append(Interval(activity, event.at_us - duration_us, event.at_us))
        if event.name == "chunk_moved" and event.text("error"):
            num_retries += 1
        elif event.name == "chunk_arrived":
            arrived.setdefault(event.number("chunk_id"), event.at_us)
        elif event.name == "chunk_visible" and event.number("chunk_id") in arrived:
            start_us = arrived[event.number("chunk_id")]
            intervals.append(Interval(Activity.SETTLE, start_us, event.at_us))
    is_timed = any(one.activity is Activity.COMPUTE for one in intervals)
    if not is_timed and "prefill_running" in at and "prefill_done" in at:
        intervals.append(Interval(Activity.COMPUTE, at["prefill_running"], at["prefill_done"]))
    return Work(
        intervals=tuple(one for one in intervals if one.end_us > one.start_us),
        exposed_us=_exposed_us(at),
        num_retries=num_retries,
    )


def _exposed_us(at: dict[str, int]) -> int:
    """Decode is ready to start once its storage is held and the first token is drawn."""
    ready = [at[name] for name in ("reserved", "prefill_done") if name in at]
    if "published" not in at or not ready:
        return 0
    return max(0, at["published"] - max(ready))
