"""Block ids become byte runs that cover the chunk once, merged where both pools adjoin."""

from hypothesis import given
from hypothesis import strategies as st

from baton.core.layout import KVLayout
from baton.core.manifest import ChunkSpec
from baton.runtime.regions import Side, block_runs, local_runs

LAYOUT = KVLayout(num_layers=3, num_kv_heads=1, head_dim=2, block_size=4)
SIZE = LAYOUT.layer_block_nbytes


def chunk(layer_start: int, num_layers: int, num_blocks: int) -> ChunkSpec:
    return ChunkSpec(
        chunk_id=0,
        layer_start=layer_start,
        num_layers=num_layers,
        block_start=0,
        num_blocks=num_blocks,
        nbytes=num_layers * num_blocks * SIZE,
    )


def test_neighbouring_blocks_on_both_sides_are_one_run():
    assert block_runs(LAYOUT, chunk(1, 1, 3), Side((4, 5, 6), 10), Side((0, 1, 2), 20)) == (
        (14 * SIZE, 20 * SIZE, 3 * SIZE),
    )


def test_a_gap_on_either_side_cuts_the_run():
    runs = block_runs(LAYOUT, chunk(0, 1, 3), Side((4, 5, 6), 10), Side((0, 1, 3), 20))
    assert runs == ((4 * SIZE, 0, 2 * SIZE), (6 * SIZE, 3 * SIZE, SIZE))


def test_whole_small_pools_of_equal_size_are_one_run_over_layers():
    assert local_runs(LAYOUT, chunk(0, 3, 2), Side((0, 1), 2)) == ((0, 6 * SIZE),)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True),
    st.permutations(range(12)),
    st.integers(0, 2),
)
def test_runs_move_every_block_of_every_layer_once(mine, order, layer_start):
    theirs = order[: len(mine)]
    spec = chunk(layer_start, 3 - layer_start, len(mine))
    moved = {}
    for local, remote, nbytes in block_runs(LAYOUT, spec, Side(mine, 10), Side(theirs, 12)):
        assert nbytes % SIZE == 0
        for step in range(0, nbytes, SIZE):
            assert moved.setdefault(local + step, remote + step) == remote + step
    expected = {
        (layer * 10 + a) * SIZE: (layer * 12 + b) * SIZE
        for layer in range(layer_start, 3)
        for a, b in zip(mine, theirs, strict=True)
    }
    assert moved == expected
