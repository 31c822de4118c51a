"""Where trace effects go: a bounded ring in memory and, if asked, a JSONL file."""

from collections import Counter, deque
from pathlib import Path

import msgspec

from baton.core.effects import Trace


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A trace effect with the host's time and place."""

    at_us: int
    place: str
    name: str
    request_id: str
    generation: int
    data: dict[str, int | float | str]


class TraceLog:
    """Keeps the last events of this process and counts all by name."""

    def __init__(self, place: str, path: str = "", capacity: int = 4096) -> None:
        self._place = place
        self._recent: deque[TraceEvent] = deque(maxlen=capacity)
        # Unbuffered: a killed process loses nothing that it had recorded.
        self._file = Path(path).open("ab", buffering=0) if path else None  # noqa: SIM115
        self._encoder = msgspec.json.Encoder()
        self.counts: Counter[str] = Counter()

    def record(self, trace: Trace, at_us: int) -> None:
        """Take one trace effect."""
        self.counts[trace.name] += 1
        event = TraceEvent(
            at_us=at_us,
            place=self._place,
            name=trace.name,
            request_id=trace.request_id,
            generation=trace.generation,
            data=trace.data,
        )
        self._recent.append(event)
        if self._file is not None:
            self._file.write(self._encoder.encode(event) + b"\n")

    def recent(self, request_id: str = "") -> list[TraceEvent]:
        """The last events, optionally of one request."""
        return [e for e in self._recent if not request_id or e.request_id == request_id]

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            self._file.close()
