"""Where trace effects go: a JSONL file for each process, if one was asked for."""

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
    """Writes the events of this process; without a path it costs nothing."""

    def __init__(self, place: str, path: str = "") -> None:
        self._place = place
        # Unbuffered: a killed process loses nothing that it had recorded.
        self._file = Path(path).open("ab", buffering=0) if path else None  # noqa: SIM115
        self._encoder = msgspec.json.Encoder()

    def record(self, trace: Trace, at_us: int) -> None:
        """Take one trace effect."""
        if self._file is None:
            return
        event = TraceEvent(
            at_us=at_us,
            place=self._place,
            name=trace.name,
            request_id=trace.request_id,
            generation=trace.generation,
            data=trace.data,
        )
        self._file.write(self._encoder.encode(event) + b"\n")

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            self._file.close()
