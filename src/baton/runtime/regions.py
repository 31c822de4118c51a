"""From block ids to byte runs in two pools, of blocks of one size or of two."""

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from baton.core.layout import DTYPE_NBYTES, KVLayout
from baton.core.manifest import ChunkSpec
from baton.core.reblock import Reblock, slot_runs
from baton.core.remap.partition import partition_of
from baton.core.remap.span import Span
from baton.errors import LocalProtocolError


class Side(NamedTuple):
    """Blocks of one pool that hold a chunk, how many blocks the pool has, and its first layer."""

    blocks: Sequence[int]
    total: int
    first_layer: int = 0
    """Of the pipeline stage whose pool it is; chunks name the layers of the whole model."""


class PoolShape:
    """How a worker's pool is cut: so many blocks, and the layers of each pipeline stage."""

    def __init__(self, layout: KVLayout, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._stages = stage_layers(layout)

    def side(self, chunk: ChunkSpec, blocks: Sequence[int]) -> tuple[int, Side]:
        """The stage that holds a chunk, and its blocks there.

        Raises LocalProtocolError for a chunk across the border of two stages.
        """
        end = chunk.layer_start + chunk.num_layers
        for stage, layers in enumerate(self._stages):
            if layers.start <= chunk.layer_start and end <= layers.stop:
                return stage, Side(blocks, self.num_blocks, layers.start)
        raise LocalProtocolError(
            f"chunk {chunk.chunk_id} of layers {chunk.layer_start} to {end - 1} lies in no one "
            f"stage of {', '.join(map(str, self._stages))}"
        )


@lru_cache(maxsize=64)
def stage_layers(layout: KVLayout) -> tuple[Span, ...]:
    """The layers of each pipeline stage of a worker with this layout."""
    return partition_of(layout, 1).stage_layers


def block_runs(
    layout: KVLayout, chunk: ChunkSpec, near: Side, far: Side
) -> tuple[tuple[int, int, int], ...]:
    """(local offset, remote offset, nbytes) runs of a chunk, merged where both sides adjoin.

    Pools are `[layer][block]` arrays of `layout.layer_block_nbytes`; totals are their block counts.
    """
    size = layout.layer_block_nbytes
    merged: list[tuple[int, int, int]] = []
    for layer in range(chunk.layer_start, chunk.layer_start + chunk.num_layers):
        near_start = (layer - near.first_layer) * near.total
        far_start = (layer - far.first_layer) * far.total
        for mine, theirs in zip(near.blocks, far.blocks, strict=True):
            local, remote = (near_start + mine) * size, (far_start + theirs) * size
            if merged:
                last_local, last_remote, nbytes = merged[-1]
                if last_local + nbytes == local and last_remote + nbytes == remote:
                    merged[-1] = (last_local, last_remote, nbytes + size)
                    continue
            merged.append((local, remote, size))
    return tuple(merged)


def local_runs(layout: KVLayout, chunk: ChunkSpec, side: Side) -> tuple[tuple[int, int], ...]:
    """(offset, nbytes) runs of a chunk in one pool."""
    runs = block_runs(layout, chunk, side, side)
    return tuple((offset, nbytes) for offset, _, nbytes in runs)


def reblocked_runs(
    layout: KVLayout, chunk: ChunkSpec, reblock: Reblock, source: Side, destination: Side
) -> list[tuple[int, int, int]]:
    """(source offset, destination offset, nbytes) runs of a chunk between blocks of two sizes.

    They are in the destination's order, `[layer][block][K|V][head][slot]`, and as long as slots
    adjoin on both sides. `layout` is that of either side.
    """
    planes, row_nbytes = _planes(layout), layout.row_nbytes
    first_layer: list[tuple[int, int, int]] = []
    slots = itertools.groupby(slot_runs(reblock), key=lambda run: run.destination_block)
    for index, group in slots:
        pieces = list(group)
        into = destination.blocks[index] * reblock.destination_block_size
        for before, width in planes:
            target = into * row_nbytes + before * reblock.destination_block_size
            for piece in pieces:
                block = source.blocks[piece.source_block] * reblock.source_block_size
                origin = block * row_nbytes + before * reblock.source_block_size
                first_layer.append(
                    (
                        origin + piece.source_slot * width,
                        target + piece.destination_slot * width,
                        piece.num_slots * width,
                    )
                )
    out_nbytes = source.total * reblock.source_block_size * row_nbytes
    in_nbytes = destination.total * reblock.destination_block_size * row_nbytes
    return [
        (
            origin + (layer - source.first_layer) * out_nbytes,
            target + (layer - destination.first_layer) * in_nbytes,
            nbytes,
        )
        for layer in range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        for origin, target, nbytes in first_layer
    ]


def reblocked_local_runs(
    layout: KVLayout, chunk: ChunkSpec, reblock: Reblock, side: Side, *, inward: bool
) -> tuple[tuple[int, int], ...]:
    """(offset, nbytes) runs of a chunk in one pool, in the destination's order."""
    size = reblock.source_block_size if inward else reblock.destination_block_size
    slots = (reblock.source_slot if inward else 0) + reblock.num_rows
    other = Side(range(-(-slots // size)), -(-slots // size), side.first_layer)
    source, destination = (other, side) if inward else (side, other)
    runs = reblocked_runs(layout, chunk, reblock, source, destination)
    own = 1 if inward else 0
    return tuple((run[own], run[2]) for run in runs)


def _planes(layout: KVLayout) -> list[tuple[int, int]]:
    """What a block is made of: (bytes per token before it, its own bytes per token), in order."""
    if layout.latent_dim:
        return [(0, layout.row_nbytes)]
    widths = [
        layout.head_dim * DTYPE_NBYTES[dtype]
        for dtype in (layout.dtype_k, layout.dtype_v)
        for _ in range(layout.num_kv_heads)
    ]
    return list(zip(itertools.accumulate(widths, initial=0), widths, strict=False))
