"""What pools must hold, written through numpy views by the meaning of an axis order alone."""

import math

import numpy as np

from baton.core.remap.apply import apply_plan, empty_pools
from baton.core.remap.axes import AXIS_ORDERS
from baton.core.remap.block_table import BlockTable
from baton.core.remap.cache_shape import CacheShape
from baton.core.remap.cover import check_cover, payload_nbytes
from baton.core.remap.partition import Partition, even_stages
from baton.core.remap.plan import Plan, plan_remap
from baton.core.remap.span import Span

NUM_LAYERS = 5


def shape(num_kv_heads: int = 2, **fields) -> CacheShape:
    fields = {"num_layers": NUM_LAYERS, "head_dim": 2, "dtype_k": "bfloat16", **fields}
    return CacheShape(num_kv_heads=num_kv_heads, **{"dtype_v": "bfloat16", **fields})


def side(
    of: CacheShape, order: str = "baton", tp: int = 1, pp: int = 1, block: int = 8, blocks: int = 16
) -> Partition:
    stages = even_stages(of.num_layers, pp)
    axes = AXIS_ORDERS[order]
    return Partition(
        shape=of, axes=axes, tp_size=tp, stages=stages, block_size=block, num_blocks=blocks
    )


def table(partition: Partition, tokens: Span, seed: int = 0, first: int = 0) -> BlockTable:
    """Blocks in a random order for all positions from `first` on."""
    order = np.random.default_rng(seed).permutation(partition.num_blocks)
    need = -(-(tokens.stop - first) // partition.block_size)
    assert need <= partition.num_blocks
    return BlockTable(block_ids=tuple(int(b) for b in order[:need]), first_position=first)


def content(of: CacheShape, num_positions: int, seed: int = 0) -> list[np.ndarray]:
    """The rows of each plane, by layer, head and position."""
    dice = np.random.default_rng(seed)
    return [
        dice.integers(0, 256, (of.num_layers, of.num_heads, num_positions, width), np.uint8)
        for width in of.widths
    ]


def view(partition: Partition, regions, plane: int, layer: int, num_layers: int) -> np.ndarray:
    """One plane of one of a rank's layers by (block, head, slot, byte), as a view."""
    lengths = {
        "layer": num_layers,
        "block": partition.num_blocks,
        "kv": len(partition.shape.widths),
        "head": max(1, partition.shape.num_heads // partition.tp_size),
        "slot": partition.block_size,
    }
    axes, width = list(partition.axes.axes[:-1]), partition.shape.widths[plane]
    region = 0
    for axis in partition.axes.apart:
        region = region * lengths[axis] + {"layer": layer, "kv": plane}[axis]
        axes.remove(axis)
    array, outer, inner = regions[region], [], axes
    if "kv" in axes:
        at = axes.index("kv")
        outer, inner = axes[:at], axes[at + 1 :]
        sizes = [math.prod(lengths[a] for a in inner) * w for w in partition.shape.widths]
        array = array.reshape(*(lengths[a] for a in outer), sum(sizes))
        array = array[..., sum(sizes[:plane]) : sum(sizes[: plane + 1])]
    array = array.reshape(*(lengths[a] for a in outer), *(lengths[a] for a in inner), width)
    names = [*outer, *inner, "dim"]
    if "layer" in names:
        array = array[(slice(None),) * names.index("layer") + (layer,)]
        names.remove("layer")
    array = array.transpose([names.index(a) for a in ("block", "head", "slot", "dim")])
    assert np.shares_memory(array, regions[region])
    return array


def fill(partition: Partition, pools, blocks: BlockTable, rows, layers: Span, tokens: Span) -> None:
    """Write rows where they belong, on every rank that must hold them."""
    positions = np.arange(*tokens)
    index, slots = np.divmod(positions - blocks.first_position, partition.block_size)
    ids = np.array(blocks.block_ids, int)[index]
    heads, first = partition.shape.num_heads, 0
    for stage, count in enumerate(partition.stages):
        for tp_rank in range(partition.tp_size):
            # The heads of a rank, told by counting: as many ranks share one as there are too many.
            own = max(1, heads // partition.tp_size)
            start = (
                tp_rank * own
                if heads >= partition.tp_size
                else tp_rank // (partition.tp_size // heads)
            )
            regions = pools[stage * partition.tp_size + tp_rank]
            for layer in range(first, first + count):
                if not layers.start <= layer < layers.stop:
                    continue
                for plane, values in enumerate(rows):
                    cache = view(partition, regions, plane, layer - first, count)
                    for head in range(own):
                        cache[ids, head, slots] = values[layer, start + head, positions]
        first += count


def noisy(partition: Partition, seed: int):
    dice = np.random.default_rng(seed)
    return [
        [dice.integers(0, 256, region.size, np.uint8) for region in regions]
        for regions in empty_pools(partition)
    ]


def same(pools, others) -> bool:
    return all(
        np.array_equal(mine, theirs)
        for regions, other in zip(pools, others, strict=True)
        for mine, theirs in zip(regions, other, strict=True)
    )


def check(source: Partition, into: Partition, tokens: Span, seed: int = 0, **options) -> Plan:
    """Plan, prove, apply, and compare every byte of the destination with what it must be."""
    first = options.pop("first", (0, 0))
    out = table(source, tokens, seed, first[0])
    to = table(into, tokens, seed + 1, first[1])
    plan = plan_remap(source, into, out, to, tokens, **options)
    check_cover(plan)
    rows = content(source.shape, plan.moved.stop, seed)
    pools, results = noisy(source, seed), noisy(into, seed + 1)
    fill(source, pools, out, rows, plan.layers, plan.moved)
    expected = [[region.copy() for region in regions] for regions in results]
    fill(into, expected, to, rows, plan.layers, plan.moved)
    before = [[region.copy() for region in regions] for regions in pools]
    apply_plan(plan, pools, results)
    assert same(results, expected)
    assert same(pools, before)
    assert plan.nbytes == payload_nbytes(plan)
    return plan
