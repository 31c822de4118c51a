"""What a data plane was ordered and what came of it, line by line, for measurements."""

from io import FileIO
from pathlib import Path

import msgspec

from baton.runtime.clock import now_us
from baton.runtime.dataplane import Completion, Finished, PutOrder, Received


class DiaryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of one chunk, on the clock that all processes of this host share."""

    at_us: int
    what: str
    """`put`: ordered (the producer gate is open, credit is taken). `moved`: the copy is over.
    `received`: notified here. `visible`: read back here."""
    reservation_id: int
    chunk_id: int
    nbytes: int
    duration_us: int = 0
    """Of the copy or the read-back itself."""
    framing_nbytes: int = 0


class PlaneDiary:
    """Appends to a file; unbuffered, so that a killed process loses nothing."""

    def __init__(self, path: str) -> None:
        self._file = FileIO(path, "ab")
        self._encoder = msgspec.json.Encoder()
        self._digests: set[int] = set()

    def ordered(self, order: PutOrder) -> None:
        """A move was ordered."""
        nbytes = sum(run[2] for run in order.runs)
        self._write(
            DiaryLine(
                at_us=now_us(),
                what="put",
                reservation_id=order.reservation_id,
                chunk_id=order.chunk_id,
                nbytes=nbytes,
            )
        )

    def summing(self, handle: int) -> None:
        """A read-back was ordered; its end is found by the handle."""
        self._digests.add(handle)

    def ended(self, completion: Completion) -> None:
        """The plane reports something; what failed is not written down."""
        match completion:
            case Received():
                self._write(
                    DiaryLine(
                        at_us=now_us(),
                        what="received",
                        reservation_id=completion.reservation_id,
                        chunk_id=completion.chunk_id,
                        nbytes=completion.nbytes,
                        framing_nbytes=completion.framing_nbytes,
                    )
                )
            case Finished(error=None):
                seen = completion.handle in self._digests
                self._digests.discard(completion.handle)
                self._write(
                    DiaryLine(
                        at_us=now_us(),
                        what="visible" if seen else "moved",
                        reservation_id=completion.reservation_id,
                        chunk_id=completion.chunk_id,
                        nbytes=completion.nbytes,
                        duration_us=completion.duration_us,
                    )
                )

    def _write(self, line: DiaryLine) -> None:
        self._file.write(self._encoder.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_diary(path: Path) -> list[DiaryLine]:
    """Every line of one life, in order."""
    decoder = msgspec.json.Decoder(DiaryLine)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]
