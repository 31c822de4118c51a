"""Where every row of a cache lies, one address for all allocations of all ranks of a side."""

import numpy as np
import numpy.typing as npt

from baton.core.remap.addresses import plane_addresses, region_nbytes
from baton.core.remap.block_table import BlockTable
from baton.core.remap.partition import Partition

Integers = npt.NDArray[np.int64]


class Rows:
    """Addresses that count through the allocations of rank after rank."""

    def __init__(self, partition: Partition, table: BlockTable) -> None:
        self.partition, self.table = partition, table
        sizes = [region_nbytes(partition, rank) for rank in range(partition.num_ranks)]
        counts = [len(regions) for regions in sizes]
        self._first_region = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        flat = np.array([nbytes for regions in sizes for nbytes in regions], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(flat)]).astype(np.int64)
        self._ids = np.array(table.block_ids or (0,), np.int64)

    def at(self, rank: Integers, region: Integers, offset: Integers) -> Integers:
        """The addresses of places given by rank, allocation and offset."""
        found: Integers = self._starts[self._first_region[rank] + region] + offset
        return found

    def of(
        self, rank: int, plane: int, layers: Integers, heads: Integers, positions: Integers
    ) -> Integers:
        """The addresses of rows of one rank; -1 for those that it does not hold."""
        held, own = self.partition.layers_of(rank), self.partition.heads_of(rank)
        address = plane_addresses(self.partition, rank)[plane]
        layer, head = layers - held.start, heads - own.start
        index, slot = np.divmod(positions - self.table.first_position, self.partition.block_size)
        block = self._ids[np.clip(index, 0, len(self._ids) - 1)]
        strides, regions = address.strides, address.region_strides
        offset = address.base + layer * strides["layer"] + block * strides["block"]
        offset = offset + head * strides["head"] + slot * strides["slot"]
        region = np.clip(address.base_region + layer * regions["layer"], 0, None)
        inside = (layer >= 0) & (layer < held.size) & (head >= 0) & (head < own.size)
        inside = inside & (index >= 0) & (index < len(self.table.block_ids))
        first = self._first_region[rank]
        most = len(self._starts) - 2
        found = self._starts[np.clip(first + region, 0, most)] + offset
        return np.where(inside, found, -1)
