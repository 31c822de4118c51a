"""Strides and allocations of named orders are those of the engines that have them."""

import pytest

from baton.core.remap.addresses import plane_addresses, region_nbytes
from baton.core.remap.axes import AXIS_ORDERS
from baton.core.remap.cache_shape import CacheShape
from baton.core.remap.partition import Partition

SHAPE = CacheShape(
    num_layers=6, num_kv_heads=4, head_dim=64, dtype_k="bfloat16", dtype_v="bfloat16"
)
VLLM = {
    # layer, block, head, slot: what vLLM 0.32's compute_layout_strides gives for this shape
    "LBHNC": (819200, 16384, 4096, 256),
    "LBNHC": (819200, 16384, 256, 1024),
    "LHBNC": (819200, 4096, 204800, 256),
    "BLHNC": (16384, 98304, 4096, 256),
    "BLNHC": (16384, 98304, 256, 1024),
    "BHLNC": (4096, 98304, 24576, 256),
}


def part(order: str, **fields) -> Partition:
    make = {"shape": SHAPE, "block_size": 16, "num_blocks": 50, **fields}
    return Partition(axes=AXIS_ORDERS[order], **make)


@pytest.mark.parametrize("order", VLLM)
def test_strides_are_those_of_vllm(order):
    key, value = plane_addresses(part(order), 0)
    regions = region_nbytes(part(order), 0)
    layer = key.strides["layer"] or regions[0]
    assert (layer, *(key.strides[axis] for axis in ("block", "head", "slot"))) == VLLM[order]
    assert (key.base, value.base, key.strides == value.strides) == (0, 128, True)
    assert sum(regions) == 6 * 819200 and len(regions) == (6 if order[0] == "L" else 1)


def test_k_and_v_of_every_layer_may_be_allocations_of_their_own():
    wide = CacheShape(num_layers=6, num_kv_heads=4, head_dim=8, head_dim_v=2)
    split = part("split", shape=wide, tp_size=2, stages=(4, 2))
    assert region_nbytes(split, 1) == (50 * 16 * 2 * 32,) * 4 + (50 * 16 * 2 * 8,) * 4
    key, value = plane_addresses(split, 3)
    assert [key.region(layer) for layer in (0, 1)] == [0, 1]
    assert [value.region(layer) for layer in (0, 1)] == [2, 3]
    assert key.offset(1, 2, 1, 3) == ((2 * 16 + 3) * 2 + 1) * 32
    assert value.offset(1, 2, 1, 3) == ((2 * 16 + 3) * 2 + 1) * 8


def test_stages_and_ranks_have_pools_of_their_own_size():
    cut = part("BLHNC", tp_size=2, stages=(4, 2))
    assert [region_nbytes(cut, rank) for rank in range(4)] == [
        (50 * 4 * 8192,),
        (50 * 4 * 8192,),
        (50 * 2 * 8192,),
        (50 * 2 * 8192,),
    ]
    assert plane_addresses(cut, 2)[0].strides["block"] == 2 * 8192
