"""What every loader gives: requests one by one, and a tally of the rows that it left out."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from baton.workload.request import WorkloadRequest


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What some formats need beside the file."""

    count_tokens: Callable[[str], int] | None = None


class Tally:
    """Counts by reason; a row that is no request is counted here, never just skipped."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []

    def leave_out(self, reason: str) -> None:
        """One row is no request, because of this."""
        self.left_out[reason] += 1

    def texts(self) -> tuple[str, ...]:
        """Everything to be said about the file."""
        counted = [f"left out {num} rows: {why}" for why, num in sorted(self.left_out.items())]
        return (*self.notes, *counted)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One trace format: how it is recognised by its first line, and how it is read.

    Requests come in the order of the file, with the file's own arrival times.
    """

    name: str
    what: str
    recognise: Callable[[str], bool]
    read: Callable[[Path, Options, Tally], Iterator[WorkloadRequest]]
    has_arrivals: Callable[[str], bool]
    tokens_per_hash: int = 0
