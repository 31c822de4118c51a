"""Performs a plan on pools in memory."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from baton.core.remap.addresses import region_nbytes
from baton.core.remap.copy import Copy
from baton.core.remap.partition import Partition
from baton.core.remap.plan import Plan
from baton.errors import LocalProtocolError

Bytes = npt.NDArray[np.uint8]
RankPools = Sequence[Sequence[Bytes]]
"""By rank, then by allocation: flat arrays of bytes."""


def empty_pools(partition: Partition) -> list[list[Bytes]]:
    """Zeroed pools of every rank of a partition."""
    return [
        [np.zeros(nbytes, np.uint8) for nbytes in region_nbytes(partition, rank)]
        for rank in range(partition.num_ranks)
    ]


def apply_plan(plan: Plan, sources: RankPools, destinations: RankPools) -> None:
    """Perform every copy of a plan, as views that step over the pools."""
    for copy in plan.copies:
        apply_copy(
            copy,
            sources[copy.source_rank][copy.source_region],
            destinations[copy.destination_rank][copy.destination_region],
        )


def apply_copy(copy: Copy, source: Bytes, destination: Bytes) -> None:
    """Perform one copy between the two allocations that it names."""
    into = run_view(
        destination, copy.destination_offset, copy.destination_strides, copy.counts, copy.run_nbytes
    )
    into[...] = run_view(
        source, copy.source_offset, copy.source_strides, copy.counts, copy.run_nbytes
    )


def run_view(
    region: Bytes, offset: int, strides: Sequence[int], counts: Sequence[int], run_nbytes: int
) -> Bytes:
    """The runs of one side of a copy as an array over its allocation, none outside it."""
    reach = [stride * (count - 1) for stride, count in zip(strides, counts, strict=True)]
    low = offset + sum(step for step in reach if step < 0)
    high = offset + sum(step for step in reach if step > 0) + run_nbytes
    if low < 0 or high > region.nbytes or region.ndim != 1 or region.dtype != np.uint8:
        raise LocalProtocolError(
            f"a copy of bytes {low} to {high} does not fit an allocation of {region.nbytes} bytes"
        )
    return np.lib.stride_tricks.as_strided(
        region[offset:], shape=(*counts, run_nbytes), strides=(*strides, 1)
    )
