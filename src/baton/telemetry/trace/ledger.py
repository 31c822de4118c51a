"""The two byte ledgers of a request: what it needed to move, and what crossed the wire."""

from collections.abc import Iterable

import msgspec

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.vocabulary import ROUTER_PLACE


class ByteLedger(msgspec.Struct, kw_only=True):
    """Bytes of K/V of one request over all its attempts; every difference has a name."""

    logical_nbytes: int = 0
    """Rows that the destination lacked, each once: the payload of what was published."""
    padding_nbytes: int = 0
    """Unused slots of last blocks, which move whole."""
    duplicate_nbytes: int = 0
    """Chunks that came again within one attempt."""
    framing_nbytes: int = 0
    """Notifications beside the payload."""
    retried_nbytes: int = 0
    """What attempts had moved that were aborted."""

    @property
    def physical_nbytes(self) -> int:
        """Everything that crossed the wire."""
        return sum(getattr(self, name) for name in self.__struct_fields__)

    def add(self, other: "ByteLedger") -> None:
        """Take another request's bytes in."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def fold_ledger(events: Iterable[TraceEvent]) -> ByteLedger:
    """The bytes of one request, from its publications and its aborts at destinations."""
    ledger = ByteLedger()
    for event in events:
        if event.name not in ("published", "aborting") or event.place == ROUTER_PLACE:
            continue
        for name in ledger.__struct_fields__:
            setattr(ledger, name, getattr(ledger, name) + event.number(name))
    return ledger
