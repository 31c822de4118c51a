"""Where the positions of one sequence lie in the blocks of one side; all its ranks share it."""

import msgspec

from baton.core.remap.partition import Partition
from baton.core.remap.span import Span
from baton.errors import RemapRefused


class BlockTable(msgspec.Struct, frozen=True, kw_only=True):
    """Pool blocks of consecutive positions."""

    block_ids: tuple[int, ...]
    first_position: int = 0
    """Of the first slot of the first block."""

    def place(self, position: int, block_size: int) -> tuple[int, int]:
        """Index within the table, and slot, of a position."""
        return divmod(position - self.first_position, block_size)


def check_table(name: str, table: BlockTable, partition: Partition, tokens: Span) -> None:
    """Refuse a table that names a block twice or outside the pool, or lacks a position."""
    ids, size = table.block_ids, partition.block_size
    wrong = [block for block in ids if not 0 <= block < partition.num_blocks]
    if wrong or len(set(ids)) != len(ids):
        raise RemapRefused(
            f"{name}_blocks",
            f"the {name}'s table has {wrong[:4] or 'a block twice'}; name each block once, "
            f"from 0 to {partition.num_blocks - 1}",
        )
    stop = table.first_position + len(ids) * size
    if tokens.size and not table.first_position <= tokens.start <= tokens.stop <= stop:
        raise RemapRefused(
            f"{name}_blocks",
            f"the {name}'s table holds positions {table.first_position} to {stop - 1}, and "
            f"{tokens.start} to {tokens.stop - 1} are asked for; give the blocks of all of them",
        )
