"""The data plane's runs are the general remap of two caches, byte for byte and stage by stage."""

import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkGeometry, ChunkSpec, plan_chunks
from baton.core.reblock import Reblock
from baton.core.remap.block_table import BlockTable
from baton.core.remap.fragments import fragments
from baton.core.remap.partition import partition_of
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span
from baton.errors import LocalProtocolError
from baton.runtime.regions import PoolShape, Side, block_runs, reblocked_runs

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
    runs = block_runs(layout, spec, *sides)
    assert origins(runs) == origins(planned(layout, (8, 8), sides, 0, 32, Span(0, 3)))


DEEP = KVLayout(num_layers=7, num_kv_heads=2, head_dim=2, block_size=8)
NUM_ROWS = 61


def by_stage(pairs) -> dict[tuple[int, int], tuple[int, int]]:
    """(destination stage, byte there) to (source stage, byte there), each destination once."""
    found = {}
    for out_stage, into_stage, runs in pairs:
        for into, out in origins(runs).items():
            assert (into_stage, into) not in found
            found[into_stage, into] = out_stage, out
    return found


@pytest.mark.parametrize("sizes", [(8, 8), (8, 16), (16, 8)])
@pytest.mark.parametrize("chunk_layers", [1, 2, 7])
@pytest.mark.parametrize(("out_pp", "into_pp"), [(1, 1), (2, 1), (1, 3), (2, 3), (7, 2), (3, 3)])
def test_chunks_go_from_stage_to_stage_as_the_general_remap_plans(
    out_pp, into_pp, chunk_layers, sizes
):
    source, into = (
        replace(DEEP, block_size=size, pp_size=pp)
        for size, pp in zip(sizes, (out_pp, into_pp), strict=True)
    )
    totals = 11, 12
    tables = [
        blocks(seed, -(-NUM_ROWS // layout.block_size), total)
        for seed, (layout, total) in enumerate(zip((source, into), totals, strict=True))
    ]
    shapes = PoolShape(source, totals[0]), PoolShape(into, totals[1])
    is_padded = sizes[0] == sizes[1]
    geometry = ChunkGeometry(chunk_layers=chunk_layers, chunk_blocks=len(tables[1]))
    specs = plan_chunks(
        into, len(tables[1]), geometry, None if is_padded else NUM_ROWS, source_pp_size=out_pp
    )
    pairs = []
    for spec in specs:
        out_stage, near = shapes[0].side(spec, tables[0])
        into_stage, far = shapes[1].side(spec, tables[1])
        if is_padded:
            runs = block_runs(into, spec, near, far)
        else:
            reblock = Reblock(
                source_block_size=sizes[0],
                source_slot=0,
                destination_block_size=sizes[1],
                num_rows=NUM_ROWS,
            )
            runs = reblocked_runs(into, spec, reblock, near, far)
        assert sum(run[2] for run in runs) == spec.nbytes
        pairs.append((out_stage, into_stage, runs))
    general = fragments(
        plan_remap(
            partition_of(source, totals[0]),
            partition_of(into, totals[1]),
            *(BlockTable(block_ids=table) for table in tables),
            Span(0, NUM_ROWS),
            whole_blocks=is_padded,
        ).copies
    )
    columns = zip(
        general.source_rank,
        general.destination_rank,
        general.source_offset,
        general.destination_offset,
        general.nbytes,
        strict=True,
    )
    planned_pairs = [(int(a), int(b), [(int(c), int(d), int(e))]) for a, b, c, d, e in columns]
    found, planned = by_stage(pairs), by_stage(planned_pairs)
    # Not the two whole: a failing comparison of them would be explained for a minute.
    assert not sorted(found.keys() ^ planned.keys())[:3]
    assert not [(at, found[at], planned[at]) for at in found if found[at] != planned[at]][:3]


def test_a_chunk_across_a_border_has_no_stage():
    spec = ChunkSpec(chunk_id=4, layer_start=3, num_layers=2, block_start=0, num_blocks=1, nbytes=0)
    with pytest.raises(LocalProtocolError, match="chunk 4 of layers 3 to 4 lies in no one stage"):
        PoolShape(replace(DEEP, pp_size=2), 9).side(spec, (0,))
