"""The plan of a remap: every copy between two partitions, from two block tables."""

import msgspec

from baton.core.remap.block_table import BlockTable, check_table
from baton.core.remap.compatibility import check_packing, check_shapes, check_whole_blocks
from baton.core.remap.copies import Copies
from baton.core.remap.copy import Copy
from baton.core.remap.partition import Partition
from baton.core.remap.senders import shares
from baton.core.remap.slots import shared_runs
from baton.core.remap.span import Span
from baton.core.remap.token_groups import PlacedRun
from baton.errors import RemapRefused


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Copies that fill the destination's blocks with the positions of `tokens`, exactly once."""

    source: Partition
    destination: Partition
    source_table: BlockTable
    destination_table: BlockTable
    layers: Span
    tokens: Span
    """Positions that were asked for."""
    padding: Span
    """Positions behind them in the destination's last block: no token has them yet."""
    moves_padding: bool
    """The source's bytes of these come along; otherwise the destination's stay as they are."""
    copies: tuple[Copy, ...]

    @property
    def moved(self) -> Span:
        """Positions whose bytes move."""
        return Span(self.tokens.start, (self.padding if self.moves_padding else self.tokens).stop)

    @property
    def nbytes(self) -> int:
        """Bytes that the copies move."""
        return sum(copy.nbytes for copy in self.copies)


def plan_remap(
    source: Partition,
    destination: Partition,
    source_table: BlockTable,
    destination_table: BlockTable,
    tokens: Span,
    *,
    layers: Span | None = None,
    whole_blocks: bool = False,
    rotation: int = 0,
) -> Plan:
    """Copies from the source's ranks into the destination's for positions `tokens` of `layers`.

    `whole_blocks` moves the padding of the last block too, in fewer runs, between equal block
    sizes; packed blocks move so always. Raises RemapRefused where no copy is exact.
    """
    check_shapes(source.shape, destination.shape)
    whole_blocks |= check_packing(source, destination)
    layers = Span(0, source.shape.num_layers) if layers is None else layers
    if not 0 <= layers.start <= layers.stop <= source.shape.num_layers:
        raise RemapRefused("layers", f"{layers} of {source.shape.num_layers} layers")
    if tokens.start < 0 or tokens.stop < tokens.start:
        raise RemapRefused("tokens", f"{tokens} is no interval of positions")
    check_table("source", source_table, source, tokens)
    check_table("destination", destination_table, destination, tokens)
    if whole_blocks:
        check_whole_blocks(source, destination, source_table, destination_table, tokens)
    padding = _padding(destination, destination_table, tokens)
    moved = Span(tokens.start, (padding if whole_blocks else tokens).stop)
    runs = _placed(source, destination, source_table, destination_table, moved)
    found = Copies(source, destination, runs)
    split = shares(source, destination, layers, rotation) if moved.size else []
    return Plan(
        source=source,
        destination=destination,
        source_table=source_table,
        destination_table=destination_table,
        layers=layers,
        tokens=tokens,
        padding=padding,
        moves_padding=whole_blocks,
        copies=tuple(copy for share in split for copy in found.of(share)),
    )


def _padding(destination: Partition, table: BlockTable, tokens: Span) -> Span:
    rest = -(tokens.stop - table.first_position) % destination.block_size if tokens.size else 0
    return Span(tokens.stop, tokens.stop + rest)


def _placed(
    source: Partition,
    destination: Partition,
    source_table: BlockTable,
    destination_table: BlockTable,
    tokens: Span,
) -> list[PlacedRun]:
    """The positions as runs within pool blocks of both sides."""
    first_from, from_slot = source_table.place(tokens.start, source.block_size)
    first_to, to_slot = destination_table.place(tokens.start, destination.block_size)
    sizes = (source.block_size, from_slot, destination.block_size, to_slot)
    placed, position = [], tokens.start
    for run in shared_runs(*sizes, tokens.size):
        placed.append(
            PlacedRun(
                source_table.block_ids[first_from + run.source_block],
                run.source_slot,
                destination_table.block_ids[first_to + run.destination_block],
                run.destination_slot,
                Span(position, position + run.num_slots),
            )
        )
        position += run.num_slots
    return placed
