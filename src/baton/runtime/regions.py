"""From block ids to byte runs in two pools of the same layout."""

from collections.abc import Sequence

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec


def block_runs(
    layout: KVLayout,
    chunk: ChunkSpec,
    local_blocks: Sequence[int],
    local_total: int,
    remote_blocks: Sequence[int],
    remote_total: int,
) -> tuple[tuple[int, int, int], ...]:
    """(local offset, remote offset, nbytes) runs of a chunk, merged where both sides adjoin.

    Pools are `[layer][block]` arrays of `layout.layer_block_nbytes`; totals are their block counts.
    """
    size = layout.layer_block_nbytes
    merged: list[tuple[int, int, int]] = []
    for layer in range(chunk.layer_start, chunk.layer_start + chunk.num_layers):
        for mine, theirs in zip(local_blocks, remote_blocks, strict=True):
            local = (layer * local_total + mine) * size
            remote = (layer * remote_total + theirs) * size
            if merged:
                last_local, last_remote, nbytes = merged[-1]
                if last_local + nbytes == local and last_remote + nbytes == remote:
                    merged[-1] = (last_local, last_remote, nbytes + size)
                    continue
            merged.append((local, remote, size))
    return tuple(merged)


def local_runs(
    layout: KVLayout, chunk: ChunkSpec, blocks: Sequence[int], total: int
) -> tuple[tuple[int, int], ...]:
    """(offset, nbytes) runs of a chunk in one pool."""
    runs = block_runs(layout, chunk, blocks, total, blocks, total)
    return tuple((offset, nbytes) for offset, _, nbytes in runs)
