"""Rows between pools whose blocks differ in size and in nothing else: which slots meet which."""

from collections.abc import Iterator

import msgspec

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec, Grant
from baton.core.remap.slots import SlotRun, shared_runs

BRIDGED = ("block_size", "pp_size")
"""The fields in which a source's layout may differ from its destination's."""


class Reblock(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of one chunk lie in the blocks of both sides.

    At the destination they begin with a block, at the source perhaps within one. Slots behind the
    last row are of neither side's concern: the two sides pad differently.
    """

    source_block_size: int
    source_slot: int
    """Slot of the first row in the first of the source's blocks."""
    destination_block_size: int
    num_rows: int


def slot_runs(reblock: Reblock) -> Iterator[SlotRun]:
    """The rows of a chunk in order, cut where a block of either side ends."""
    sizes = reblock.source_block_size, reblock.source_slot, reblock.destination_block_size
    return shared_runs(*sizes, 0, reblock.num_rows)


def transform_defect(source: KVLayout, destination: KVLayout) -> str:
    """Name of the first field that no transform bridges, or "".

    Only the block size and the number of pipeline stages may differ.
    """
    for name in KVLayout.__struct_fields__:
        if name not in BRIDGED and getattr(source, name) != getattr(destination, name):
            return name
    return ""


def source_layout(grant: Grant, layout: KVLayout) -> KVLayout:
    """The source's layout, from that of either side."""
    sizes, splits = grant.block_sizes, grant.pp_sizes
    if sizes is None and splits is None:
        return layout
    return msgspec.structs.replace(
        layout,
        block_size=sizes.source if sizes else layout.block_size,
        pp_size=splits.source if splits else layout.pp_size,
    )


def destination_layout(grant: Grant, layout: KVLayout) -> KVLayout:
    """The destination's layout, from that of either side."""
    sizes, splits = grant.block_sizes, grant.pp_sizes
    if sizes is None and splits is None:
        return layout
    return msgspec.structs.replace(
        layout,
        block_size=sizes.destination if sizes else layout.block_size,
        pp_size=splits.destination if splits else layout.pp_size,
    )


def chunk_rows(grant: Grant, layout: KVLayout, spec: ChunkSpec) -> range:
    """Positions that a chunk carries, without the padding of a last block."""
    size = destination_layout(grant, layout).block_size
    start = grant.token_start + spec.block_start * size
    return range(start, min(start + spec.num_blocks * size, grant.num_tokens))


def source_blocks(grant: Grant, layout: KVLayout, spec: ChunkSpec | None = None) -> slice:
    """Where a chunk (or the whole transfer set) lies in the source's block table, as a slice."""
    if not grant.num_remote_blocks:
        return slice(0, 0)
    size = source_layout(grant, layout).block_size
    rows = chunk_rows(grant, layout, spec) if spec else range(grant.token_start, grant.num_tokens)
    return slice(rows.start // size, -(-rows.stop // size))


def reblock_of(grant: Grant, layout: KVLayout, spec: ChunkSpec) -> Reblock | None:
    """How a chunk's rows lie on both sides; None where blocks are of one size and move whole."""
    sizes = grant.block_sizes
    if sizes is None:
        return None
    rows = chunk_rows(grant, layout, spec)
    return Reblock(
        source_block_size=sizes.source,
        source_slot=rows.start % sizes.source,
        destination_block_size=sizes.destination,
        num_rows=len(rows),
    )
