"""Chunk plans: both sides derive the same exact cover, and a mutant of it is not one."""

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.manifest import (
    ChunkGeometry,
    ChunkSpec,
    choose_geometry,
    covers_exactly,
    plan_chunks,
    prompt_digest,
)

layouts = st.builds(
    KVLayout,
    num_layers=st.integers(1, 7),
    num_kv_heads=st.integers(1, 4),
    head_dim=st.integers(1, 8),
    block_size=st.integers(1, 8),
    latent_dim=st.sampled_from([0, 0, 5]),
)
geometries = st.builds(
    ChunkGeometry, chunk_layers=st.integers(1, 9), chunk_blocks=st.integers(1, 9)
)


def cells(chunk: ChunkSpec) -> list[tuple[int, int]]:
    return list(
        product(
            range(chunk.layer_start, chunk.layer_start + chunk.num_layers),
            range(chunk.block_start, chunk.block_start + chunk.num_blocks),
        )
    )


@given(layouts, st.integers(0, 12), geometries)
def test_a_plan_covers_every_layer_of_every_block_exactly_once(layout, num_blocks, geometry):
    plan = plan_chunks(layout, num_blocks, geometry)
    covered = [cell for chunk in plan for cell in cells(chunk)]
    assert sorted(covered) == list(product(range(layout.num_layers), range(num_blocks)))
    assert covers_exactly(plan, layout.num_layers, num_blocks)
    assert [chunk.chunk_id for chunk in plan] == list(range(len(plan)))
    assert sum(chunk.nbytes for chunk in plan) == num_blocks * layout.bytes_per_block
    assert all(chunk.num_layers <= geometry.chunk_layers for chunk in plan)
    assert all(chunk.num_blocks <= geometry.chunk_blocks for chunk in plan)


@given(layouts, st.integers(1, 8), geometries, st.data())
def test_any_change_of_one_chunk_breaks_the_cover(layout, num_blocks, geometry, data):
    plan = list(plan_chunks(layout, num_blocks, geometry))
    index = data.draw(st.integers(0, len(plan) - 1))
    field = data.draw(st.sampled_from(["layer_start", "num_layers", "block_start", "num_blocks"]))
    delta = data.draw(st.integers(-3, 3).filter(bool))
    value = getattr(plan[index], field) + delta
    plan[index] = msgspec.structs.replace(plan[index], **{field: value})
    assert not covers_exactly(plan, layout.num_layers, num_blocks)


@given(layouts, st.integers(1, 8), geometries, st.data())
def test_a_missing_or_repeated_chunk_breaks_the_cover(layout, num_blocks, geometry, data):
    plan = plan_chunks(layout, num_blocks, geometry)
    index = data.draw(st.integers(0, len(plan) - 1))
    without = plan[:index] + plan[index + 1 :]
    assert not covers_exactly(without, layout.num_layers, num_blocks)
    assert not covers_exactly((*plan, plan[index]), layout.num_layers, num_blocks)


def test_a_negative_layer_does_not_stand_for_a_real_one():
    chunk = ChunkSpec(
        chunk_id=0, layer_start=-1, num_layers=4, block_start=0, num_blocks=1, nbytes=4
    )
    assert not covers_exactly([chunk], 4, 1)
    sideways = msgspec.structs.replace(chunk, layer_start=0, num_layers=1, block_start=-1)
    assert not covers_exactly([sideways], 1, 1)


def test_nothing_covers_nothing():
    assert covers_exactly([], 4, 0)
    assert not covers_exactly([], 4, 1)


@given(
    layouts,
    st.integers(0, 40),
    st.sampled_from(Schedule),
    st.integers(1, 4096),
    st.integers(0, 16),
)
def test_geometry_keeps_a_chunk_within_its_bytes_or_to_one_block_of_one_layer(
    layout, num_blocks, schedule, chunk_nbytes, step_blocks
):
    geometry = choose_geometry(layout, num_blocks, schedule, chunk_nbytes, step_blocks)
    smallest = layout.layer_block_nbytes
    nbytes = geometry.chunk_layers * geometry.chunk_blocks * smallest
    assert nbytes <= max(chunk_nbytes, smallest)
    assert 1 <= geometry.chunk_layers <= layout.num_layers
    assert 1 <= geometry.chunk_blocks <= max(1, num_blocks)
    if schedule is Schedule.LAYER:
        assert geometry.chunk_layers == 1
        assert geometry.chunk_blocks <= max(1, step_blocks)


def test_a_request_schedule_gathers_the_layers_of_a_small_prompt():
    layout = KVLayout(num_layers=8, num_kv_heads=1, head_dim=1, block_size=1)  # 8 bytes each
    assert choose_geometry(layout, 2, Schedule.REQUEST, 64, 99) == ChunkGeometry(
        chunk_layers=4, chunk_blocks=2
    )
    assert len(plan_chunks(layout, 2, ChunkGeometry(chunk_layers=4, chunk_blocks=2))) == 2


def test_a_prompt_digest_knows_order_length_and_boundaries():
    digests = [prompt_digest(ids) for ids in ([], [1], [1, 2], [2, 1], [258], [0], [0, 0])]
    assert len(set(digests)) == len(digests)
    assert prompt_digest((1, 2)) == prompt_digest([1, 2])


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_an_impossible_token_id_has_no_digest(token):
    with pytest.raises(OverflowError):
        prompt_digest([token])
