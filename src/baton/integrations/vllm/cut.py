"""Which heads go from which rank to which between two servers, and where they lie in a block."""

from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from baton.core.layout import KVLayout
from baton.core.remap.axes import AXIS_ORDERS
from baton.core.remap.block_table import BlockTable
from baton.core.remap.cache_shape import CacheShape
from baton.core.remap.fragments import fragments
from baton.core.remap.partition import Partition
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span

MAX_TP_SIZE = 256


class PeerRank(NamedTuple):
    """One rank of a peer that has so many tensor-parallel ranks."""

    tp_size: int
    rank: int


class Piece(NamedTuple):
    """Bytes that lie side by side in a block of both sides; offsets count within the block."""

    source_offset: int
    destination_offset: int
    nbytes: int


class Cut(NamedTuple):
    """What one source rank sends to one destination rank."""

    heads: Span
    """Of the whole model."""
    pieces: tuple[Piece, ...]
    """Of every block of every layer, in the order in which both sides sum them."""


class Cuts:
    """Everything between servers of two tensor-parallel sizes: pairs of ranks that have bytes.

    `layout` is that of one rank of either side. Raises RemapRefused for sizes that do not cut the
    model's heads evenly.
    """

    def __init__(self, layout: KVLayout, num_kv_heads: int, source_tp: int, target_tp: int) -> None:
        self._layout = layout
        self._tp = (source_tp, target_tp)
        self._num_kv_heads = num_kv_heads
        if source_tp == target_tp:
            nbytes = layout.layer_block_nbytes
            whole = Cut(Span(0, layout.num_kv_heads), (Piece(0, 0, nbytes),))
            self.between = {(rank, rank): whole for rank in range(source_tp)}
        else:
            self.between = _planned(
                _partition(layout, num_kv_heads, source_tp),
                _partition(layout, num_kv_heads, target_tp),
            )

    def takers_of(self, source_rank: int) -> list[int]:
        """Destination ranks that get heads of a source rank; none of a replica that is not used."""
        return [target for source, target in self.between if source == source_rank]

    def sources_of(self, destination_rank: int) -> list[int]:
        """Source ranks whose heads together are those of a destination rank."""
        return [source for source, target in self.between if target == destination_rank]

    def layout_of(self, source_rank: int, destination_rank: int) -> KVLayout:
        """In which one leg is moved, summed and sealed; both its ends derive the same.

        Between equal sizes it is the rank's own. Its digest stands in the manifest, so a leg of
        other ranks, other heads or other sizes is never taken for this one.
        """
        source_tp, target_tp = self._tp
        if source_tp == target_tp:
            return self._layout
        heads = self.between[source_rank, destination_rank].heads
        return replace(
            self._layout,
            num_kv_heads=heads.size,
            tp_size=target_tp,
            axis_order=f"{self._layout.axis_order}, heads {heads.start} to {heads.stop - 1} of "
            f"{self._num_kv_heads}, rank {source_rank} of {source_tp} to rank {destination_rank} "
            f"of {target_tp}",
        )


def _partition(layout: KVLayout, num_kv_heads: int, tp_size: int) -> Partition:
    """One layer and one block of a server's cache: all blocks of all layers are alike."""
    shape = CacheShape(
        num_layers=1,
        num_kv_heads=num_kv_heads,
        head_dim=layout.head_dim,
        dtype_k=layout.dtype_k,
        dtype_v=layout.dtype_v,
    )
    size = layout.block_size
    axes = AXIS_ORDERS["cpu"]
    return Partition(shape=shape, axes=axes, tp_size=tp_size, block_size=size, num_blocks=1)


@cache
def _planned(source: Partition, destination: Partition) -> dict[tuple[int, int], Cut]:
    block = BlockTable(block_ids=(0,))
    plan = plan_remap(source, destination, block, block, Span(0, source.block_size))
    pairs = {(copy.source_rank, copy.destination_rank): copy.heads for copy in plan.copies}
    cuts = {}
    for pair, heads in pairs.items():
        copies = [c for c in plan.copies if (c.source_rank, c.destination_rank) == pair]
        runs = fragments(copies)
        columns = (runs.source_offset, runs.destination_offset, runs.nbytes)
        pieces = zip(*(column.tolist() for column in columns), strict=True)
        cuts[pair] = Cut(heads, tuple(Piece(*piece) for piece in pieces))
    return cuts
