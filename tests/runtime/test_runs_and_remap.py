"""The data plane's runs are the general remap of two whole caches, byte for byte."""

import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec
from baton.core.reblock import Reblock
from baton.core.remap.block_table import BlockTable
from baton.core.remap.fragments import fragments
from baton.core.remap.partition import partition_of
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span
from baton.runtime.regions import Side, block_runs, reblocked_runs

PLAIN = KVLayout(num_layers=3, num_kv_heads=2, head_dim=2, block_size=8)
LAYOUTS = {
    "plain": PLAIN,
    "values in half": replace(PLAIN, dtype_v="bfloat16"),
    "latent": replace(PLAIN, latent_dim=5, dtype_k="bfloat16"),
}
SIZES = (8, 16, 32)


def origins(runs) -> dict[int, int]:
    """Where each destination byte comes from."""
    return {
        int(into) + byte: int(out) + byte for out, into, nbytes in runs for byte in range(nbytes)
    }


def blocks(seed: int, need: int, total: int) -> tuple[int, ...]:
    return tuple(int(b) for b in np.random.default_rng(seed).permutation(total)[:need])


def planned(layout: KVLayout, sizes, tables, slot: int, num_rows: int, layers: Span):
    source, into = (
        partition_of(replace(layout, block_size=size), side.total)
        for size, side in zip(sizes, tables, strict=True)
    )
    found = fragments(
        plan_remap(
            source,
            into,
            BlockTable(block_ids=tuple(tables[0].blocks), first_position=-slot),
            BlockTable(block_ids=tuple(tables[1].blocks)),
            Span(0, num_rows),
            layers=layers,
        ).copies
    )
    return list(zip(found.source_offset, found.destination_offset, found.nbytes, strict=True))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    ("out", "into"), [p for p in itertools.product(SIZES, SIZES) if len({*p}) > 1]
)
def test_runs_between_two_block_sizes(out, into, name):
    layout, layers = LAYOUTS[name], Span(1, 3)
    for slot, num_rows in ((0, 61), (5, 61), (0, 64), (7, 1)):
        sides = (
            Side(blocks(1, -(-(slot + num_rows) // out), 11), 11),
            Side(blocks(2, -(-num_rows // into), 12), 12),
        )
        spec = ChunkSpec(
            chunk_id=0, layer_start=1, num_layers=2, block_start=0, num_blocks=9, nbytes=0
        )
        reblock = Reblock(
            source_block_size=out, source_slot=slot, destination_block_size=into, num_rows=num_rows
        )
        runs = reblocked_runs(layout, spec, reblock, *sides)
        general = planned(layout, (out, into), sides, slot, num_rows, layers)
        assert origins(runs) == origins(general)
        assert len(general) <= len(runs)


@pytest.mark.parametrize("name", LAYOUTS)
def test_runs_of_whole_blocks(name):
    layout = LAYOUTS[name]
    sides = Side(blocks(3, 4, 9), 9), Side(blocks(4, 4, 7), 7)
    spec = ChunkSpec(chunk_id=0, layer_start=0, num_layers=3, block_start=0, num_blocks=4, nbytes=0)
    runs = block_runs(layout, spec, sides[0].blocks, 9, sides[1].blocks, 7)
    assert origins(runs) == origins(planned(layout, (8, 8), sides, 0, 32, Span(0, 3)))
