"""Which two partitions can exchange a cache exactly; a refusal says which field is in the way."""

from baton.core.remap.block_table import BlockTable
from baton.core.remap.cache_shape import CacheShape
from baton.core.remap.partition import Partition
from baton.core.remap.span import Span
from baton.errors import RemapRefused

REMEDIES: dict[str, str] = {
    "num_layers": "both sides must serve the same model",
    "latent_dim": "both sides must hold latent rows, or neither: set the same attention backend",
    "num_kv_heads": "give the model's K/V heads, not those of a rank",
    "head_dim": "both sides must serve the same model",
    "head_dim_v": "both sides must serve the same model",
    "dtype_k": "rows are never converted; set the same K/V cache type on both sides",
    "dtype_v": "rows are never converted; set the same K/V cache type on both sides",
    "scales": "a quantised row means nothing under other scales; load the same checkpoint's",
    "has_row_scales": "set the same quantisation on both sides",
}
"""What to do about each field of a shape that differs."""


def check_shapes(source: CacheShape, destination: CacheShape) -> None:
    """Refuse caches that do not hold the same thing."""
    fields = REMEDIES
    if source.is_latent and destination.is_latent:
        unused = {"num_kv_heads", "head_dim", "head_dim_v", "dtype_v"}
        fields = {name: text for name, text in REMEDIES.items() if name not in unused}
    for name, remedy in fields.items():
        ours, theirs = _value(source, name), _value(destination, name)
        if ours != theirs:
            raise RemapRefused(
                name, f"{ours!r} at the source, {theirs!r} at the destination; {remedy}"
            )
    if source.has_row_scales:
        raise RemapRefused(
            "has_row_scales",
            "scales that are computed with the rows are a cache of their own: plan it as a second "
            "shape, whose head_dim is the scales of a row, and the rows as one without",
        )


def _value(shape: CacheShape, name: str) -> object:
    value: object = getattr(shape, name)
    return shape.head_dim if name == "head_dim_v" and not value else value


def check_packing(source: Partition, destination: Partition) -> bool:
    """Refuse unequal packings; True where blocks are packed and therefore move whole."""
    ours, theirs = source.axes, destination.axes
    if ours.packing != theirs.packing:
        raise RemapRefused(
            "packing",
            f"{ours.packing or 'rows'!r} at the source, {theirs.packing or 'rows'!r} at the "
            f"destination; only equal packings can be exchanged: use the same attention backend",
        )
    if not ours.packing:
        return False
    if ours.tile != theirs.tile or source.block_size != destination.block_size:
        raise RemapRefused(
            "packing",
            f"blocks packed as {ours.packing!r} move whole; give both sides one block size and "
            f"one order inside the head axis",
        )
    return True


def check_whole_blocks(
    source: Partition,
    destination: Partition,
    source_table: BlockTable,
    destination_table: BlockTable,
    tokens: Span,
) -> None:
    """Refuse to move whole blocks where a block of one side is not a block of the other."""
    size = destination.block_size
    starts = [
        (tokens.start - table.first_position) % size for table in (source_table, destination_table)
    ]
    if source.block_size != size or any(starts):
        raise RemapRefused(
            "whole_blocks",
            f"blocks of {source.block_size} and {size} tokens from position {tokens.start}: whole "
            f"blocks move between equal sizes and from the start of a block; move rows instead",
        )
