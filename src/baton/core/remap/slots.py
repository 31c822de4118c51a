"""Which slots of one side's blocks meet which of the other's, when their sizes differ."""

from collections.abc import Iterator
from typing import NamedTuple


class SlotRun(NamedTuple):
    """Neighbouring slots within one block on both sides; blocks count from the first of each."""

    source_block: int
    source_slot: int
    destination_block: int
    destination_slot: int
    num_slots: int


def shared_runs(
    source_size: int,
    source_slot: int,
    destination_size: int,
    destination_slot: int,
    num_rows: int,
) -> Iterator[SlotRun]:
    """Rows in order, cut where a block of either side ends; both sides may begin within one."""
    row = 0
    while row < num_rows:
        from_block, from_slot = divmod(source_slot + row, source_size)
        to_block, to_slot = divmod(destination_slot + row, destination_size)
        num_slots = min(source_size - from_slot, destination_size - to_slot, num_rows - row)
        yield SlotRun(from_block, from_slot, to_block, to_slot, num_slots)
        row += num_slots
