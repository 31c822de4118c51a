"""Where a row lies in a rank's pool: the strides of every axis, in bytes and in allocations."""

import math

import msgspec

from baton.core.remap.partition import Partition


class PlaneAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of K, of V or of the latent rows in the pool of one rank."""

    base: int
    strides: dict[str, int]
    """Bytes between neighbours of each axis; 0 for an axis that chooses the allocation."""
    base_region: int
    region_strides: dict[str, int]
    """The same in allocations."""

    def offset(self, layer: int, block: int, head: int, slot: int) -> int:
        """Where a row begins in its allocation; all four count within the rank's pool."""
        at = self.strides
        place = layer * at["layer"] + block * at["block"] + head * at["head"] + slot * at["slot"]
        return self.base + place

    def region(self, layer: int) -> int:
        """The allocation that holds a layer."""
        return self.base_region + layer * self.region_strides["layer"]


def extents(partition: Partition, rank: int) -> dict[str, int]:
    """Length of every axis but the innermost in the pool of a rank."""
    return {
        "layer": partition.layers_of(rank).size,
        "block": partition.num_blocks,
        "kv": len(partition.shape.widths),
        "head": partition.heads_per_rank,
        "slot": partition.block_size,
    }


def plane_addresses(partition: Partition, rank: int) -> tuple[PlaneAddresses, ...]:
    """Of each plane of the cache. K and V may be of different widths, so outside the kv axis a
    stride counts both, and inside it the plane's own."""
    axes, lengths = partition.axes.axes, extents(partition, rank)
    inside = axes[axes.index("kv") + 1 : -1]
    rows = math.prod(lengths[axis] for axis in inside)
    sizes = [rows * width for width in partition.shape.widths]
    found = []
    for plane, width in enumerate(partition.shape.widths):
        strides, region_strides = dict.fromkeys(axes, 0), dict.fromkeys(axes, 0)
        size, regions = width, 1
        for axis in reversed(axes[:-1]):
            if axis in partition.axes.apart:
                region_strides[axis] = regions
                regions *= lengths[axis]
                continue
            if axis == "kv":
                size = sum(sizes)
                continue
            strides[axis] = size
            size *= lengths[axis]
        is_apart = "kv" in partition.axes.apart
        found.append(
            PlaneAddresses(
                base=0 if is_apart else sum(sizes[:plane]),
                strides=strides,
                base_region=plane * region_strides["kv"],
                region_strides=region_strides,
            )
        )
    return tuple(found)


def region_nbytes(partition: Partition, rank: int) -> tuple[int, ...]:
    """Bytes of each allocation of a rank's pool."""
    lengths, apart = extents(partition, rank), partition.axes.apart
    rows = math.prod(lengths[axis] for axis in lengths if axis != "kv" and axis not in apart)
    layers = lengths["layer"] if "layer" in apart else 1
    if "kv" not in apart:
        return (rows * sum(partition.shape.widths),) * layers
    sizes = [rows * width for width in partition.shape.widths]
    outer_kv = [size for size in sizes for _ in range(layers)]
    return tuple(outer_kv if apart[0] == "kv" else sizes * layers)
