"""How an engine cuts a cache over its ranks, and which layers and heads a rank holds."""

from functools import cached_property

import msgspec

from baton.core.layout import KVLayout
from baton.core.remap.axes import AxisOrder
from baton.core.remap.cache_shape import CacheShape, shape_of
from baton.core.remap.span import Span
from baton.errors import RemapRefused


def even_stages(num_layers: int, pp_size: int) -> tuple[int, ...]:
    """Layers of each stage as engines cut them by default: the remainder goes to the stages before
    the last, from the back, because the last one has the vocabulary head too."""
    if not 1 <= pp_size <= num_layers:
        raise RemapRefused(
            "empty_stage", f"{num_layers} layers cannot fill {pp_size} stages; use fewer stages"
        )
    each, rest = divmod(num_layers, pp_size)
    return tuple(each + (pp_size - 1 - rest <= stage < pp_size - 1) for stage in range(pp_size))


class Partition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One engine's cache: tensor parallel ranks within each pipeline stage, paged by blocks.

    Rank `stage * tp_size + tp_rank` holds the stage's layers and its share of the heads. Where
    there are more ranks than heads, neighbouring ranks hold copies of one head.
    """

    shape: CacheShape
    axes: AxisOrder = AxisOrder()
    tp_size: int = 1
    stages: tuple[int, ...] = ()
    """Layers of each pipeline stage; () is one stage with all of them."""
    block_size: int
    num_blocks: int
    """Blocks of the pool; every rank has a pool of that many."""

    def __post_init__(self) -> None:
        for name in ("tp_size", "block_size", "num_blocks"):
            if getattr(self, name) < 1:
                raise RemapRefused(name, f"{name} is {getattr(self, name)}; it is at least 1")
        if self.stages and (min(self.stages) < 1 or sum(self.stages) != self.shape.num_layers):
            raise RemapRefused(
                "stages",
                f"stages of {self.stages} layers do not make up {self.shape.num_layers} layers; "
                f"every stage has a layer and every layer a stage",
            )
        heads, tp = self.shape.num_heads, self.tp_size
        if heads % tp and tp % heads:
            raise RemapRefused(
                "uneven_heads",
                f"{heads} K/V heads over tp_size {tp}: no engine cuts them unevenly; use a "
                f"tp_size that divides {heads} or is a multiple of it",
            )

    @property
    def pp_size(self) -> int:
        """Pipeline stages."""
        return len(self.stages) or 1

    @property
    def num_ranks(self) -> int:
        """Ranks over all stages."""
        return self.pp_size * self.tp_size

    @property
    def heads_per_rank(self) -> int:
        """Heads in a rank's pool."""
        return max(1, self.shape.num_heads // self.tp_size)

    @cached_property
    def stage_layers(self) -> tuple[Span, ...]:
        """The layers of each stage."""
        spans, start = [], 0
        for size in self.stages or (self.shape.num_layers,):
            spans.append(Span(start, start + size))
            start += size
        return tuple(spans)

    def layers_of(self, rank: int) -> Span:
        """The layers that a rank holds."""
        return self.stage_layers[rank // self.tp_size]

    def heads_of(self, rank: int) -> Span:
        """The heads that a rank holds; from the number of heads of the whole model, always."""
        start = (rank % self.tp_size) * self.shape.num_heads // self.tp_size
        return Span(start, start + self.heads_per_rank)

    def holders(self, stage: int, head: int) -> range:
        """The ranks of a stage that hold a head: one, or its replicas."""
        replicas = max(1, self.tp_size // self.shape.num_heads)
        first = stage * self.tp_size + head * self.tp_size // self.shape.num_heads
        return range(first, first + replicas)


def partition_of(layout: KVLayout, num_blocks: int) -> Partition:
    """The partition of a layout that describes the whole model."""
    pp_size = layout.pp_size
    return Partition(
        shape=shape_of(layout),
        axes=AxisOrder(order=layout.axis_order),
        tp_size=layout.tp_size,
        stages=even_stages(layout.num_layers, pp_size) if pp_size > 1 else (),
        block_size=layout.block_size,
        num_blocks=num_blocks,
    )
