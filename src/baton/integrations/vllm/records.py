"""What a destination remembers of loads that have ended: times, bytes, and why one failed."""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from baton.core.ids import Fence

MAX_RECORDS = 1024
"""Ended loads that a leg remembers; a gateway asks within a second of the first token."""


class HandoffRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One leg of a load that has ended. Times are of its host's monotonic clock in microseconds;
    0 is a step that was not reached."""

    fence: Fence
    """As granted; with reservation 0 when the source was never met."""
    rank: int
    """Of the destination."""
    num_legs: int
    """Of this rank's load: each has a record."""
    asked_us: int
    """vLLM gave the blocks."""
    reserved_us: int
    """The grant was fixed and the right spent."""
    claimed_us: int
    """The source knew of it."""
    first_byte_us: int
    """The first read began, or the first chunk of a push was here."""
    all_visible_us: int
    validated_us: int
    ended_us: int
    """Published; or failed, and nobody could write the blocks any more."""
    reason: str
    """Why it failed; "" when it was published."""
    num_tokens: int
    """Rows of the prompt."""
    visible_tokens: int
    """Of those, rows that were here before."""
    num_blocks: int
    num_chunks: int
    num_layers: int
    logical_nbytes: int
    padding_nbytes: int
    duplicate_nbytes: int
    arrived_nbytes: int
    """Payload that was moved; of a load that failed all of it is wasted."""
    num_repeats: int
    """Messages that were said again because no answer came."""


class Records:
    """The last ended loads of one leg, the newest of each transfer."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._max_records = max_records
        self._by_transfer: OrderedDict[str, HandoffRecord] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_transfer)

    def keep(self, record: HandoffRecord) -> None:
        """Remember one more; the oldest is forgotten beyond the bound."""
        transfer_id = record.fence.transfer_id
        self._by_transfer[transfer_id] = record
        self._by_transfer.move_to_end(transfer_id)
        if len(self._by_transfer) > self._max_records:
            self._by_transfer.popitem(last=False)

    def of(self, transfer_ids: Iterable[str]) -> list[HandoffRecord]:
        """Those of these transfers that are remembered."""
        found = (self._by_transfer.get(transfer_id) for transfer_id in transfer_ids)
        return [record for record in found if record is not None]
