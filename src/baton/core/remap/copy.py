"""One strided copy between the pools of two ranks."""

import math

import msgspec

from baton.core.remap.span import Span


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """`prod(counts)` runs of `run_nbytes` contiguous bytes, at regular distances on both sides."""

    source_rank: int
    destination_rank: int
    source_replicas: tuple[int, ...]
    """Every source rank that holds the same bytes, the chosen one included."""
    layers: Span
    heads: Span
    """Of the whole model."""
    planes: str
    """`kv`, `k`, `v` or `latent`."""
    tokens: Span
    source_region: int
    """Allocation within the rank's pool; 0 where a rank has one."""
    source_offset: int
    source_strides: tuple[int, ...]
    destination_region: int
    destination_offset: int
    destination_strides: tuple[int, ...]
    counts: tuple[int, ...]
    """Runs along each axis, outermost (at the destination) first."""
    run_nbytes: int

    @property
    def num_runs(self) -> int:
        """Runs that it moves."""
        return math.prod(self.counts)

    @property
    def nbytes(self) -> int:
        """Bytes that it moves."""
        return self.num_runs * self.run_nbytes
