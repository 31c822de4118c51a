"""What a worker traced since its last word to the gateway: bounded, and sent beside a heartbeat."""

from baton.core.effects import Trace
from baton.core.messages import Traced, TraceMark
from baton.telemetry.trace.vocabulary import DETAILS

_MAX_MARKS = 4096


class TraceFeed:
    """Collects events of requests; those of single chunks and layers stay in the trace file."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._marks: list[TraceMark] = []
        self.num_dropped = 0

    def add(self, trace: Trace, at_us: int) -> None:
        """Take one event; beyond the bound it is counted and dropped."""
        if not self._is_on or not trace.request_id or trace.name in DETAILS:
            return
        if len(self._marks) >= _MAX_MARKS:
            self.num_dropped += 1
            return
        mark = TraceMark(at_us, trace.name, trace.request_id, trace.generation, trace.data)
        self._marks.append(mark)

    def take(self, now_us: int) -> Traced | None:
        """Everything since the last call, or None."""
        if not self._marks:
            return None
        marks, self._marks = self._marks, []
        return Traced(sent_us=now_us, marks=tuple(marks))
