"""Random partitions: exact cover, identity there and back, one way equal to two, longest runs."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.core.remap.apply import apply_plan
from baton.core.remap.axes import AXES, AxisOrder
from baton.core.remap.cover import check_cover
from baton.core.remap.fragments import fragments
from baton.core.remap.partition import Partition
from baton.core.remap.plan import plan_remap
from baton.core.remap.rows import Rows
from baton.core.remap.span import Span
from tests.core.remap.truth import check, content, fill, noisy, same, shape, table

HEADS = st.sampled_from([1, 2, 3, 4, 6, 8])
TYPES = st.sampled_from(["float8", "bfloat16", "float32"])
DEEP = settings(max_examples=120, deadline=None)


@st.composite
def shapes(draw):
    latent = draw(st.sampled_from([0, 0, 0, 3]))
    return shape(
        draw(HEADS),
        num_layers=draw(st.integers(1, 5)),
        head_dim=draw(st.integers(1, 3)),
        head_dim_v=draw(st.sampled_from([0, 0, 2])),
        dtype_k=draw(TYPES),
        dtype_v=draw(TYPES),
        latent_dim=latent,
    )


@st.composite
def orders(draw):
    axes = draw(st.permutations(AXES[:-1]))
    leading = next((i for i, axis in enumerate(axes) if axis not in ("layer", "kv")), 2)
    return AxisOrder(order=",".join([*axes, "dim"]), num_apart=draw(st.integers(0, leading)))


@st.composite
def partitions(draw, of):
    heads = of.num_heads
    fits = [tp for tp in (1, 2, 3, 4, 6, 8) if heads % tp == 0 or tp % heads == 0]
    cuts = sorted(draw(st.sets(st.integers(1, of.num_layers), max_size=3)) | {of.num_layers})
    stages = tuple(stop - start for start, stop in zip([0, *cuts[:-1]], cuts, strict=True))
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    return Partition(
        shape=of,
        axes=draw(orders()),
        tp_size=draw(st.sampled_from(fits)),
        stages=stages,
        block_size=block_size,
        num_blocks=24 // block_size + 2,
    )


@st.composite
def spans(draw, stop=22):
    start = draw(st.integers(0, stop))
    return Span(start, draw(st.integers(start, stop)))


@DEEP
@given(st.data())
def test_every_byte_is_written_once_and_truly(data):
    of = data.draw(shapes())
    source, into, tokens = data.draw(partitions(of)), data.draw(partitions(of)), data.draw(spans())
    first = data.draw(st.tuples(*[st.integers(0, tokens.start)] * 2))
    layers = data.draw(spans(of.num_layers))
    rotation = data.draw(st.integers(0, 9))
    plan = check(source, into, tokens, first=first, layers=layers, rotation=rotation)
    assert [
        copy for copy in plan.copies if copy.run_nbytes < 1 or min(copy.counts, default=2) < 2
    ] == []
    for copy in plan.copies:
        assert copy.source_rank in copy.source_replicas
        assert copy.destination_strides == tuple(sorted(copy.destination_strides, reverse=True))


@DEEP
@given(st.data())
def test_there_and_back_is_identity(data):
    of = data.draw(shapes())
    here, there, tokens = data.draw(partitions(of)), data.draw(partitions(of)), data.draw(spans())
    own, other = table(here, tokens, 1), table(there, tokens, 2)
    rows = content(of, tokens.stop)
    pools, between, back = noisy(here, 1), noisy(there, 2), noisy(here, 3)
    fill(here, pools, own, rows, Span(0, of.num_layers), tokens)
    expected = [[region.copy() for region in regions] for regions in back]
    fill(here, expected, own, rows, Span(0, of.num_layers), tokens)
    apply_plan(plan_remap(here, there, own, other, tokens), pools, between)
    apply_plan(plan_remap(there, here, other, own, tokens), between, back)
    assert same(back, expected)


@DEEP
@given(st.data())
def test_two_plans_in_a_row_are_the_direct_one(data):
    of = data.draw(shapes())
    sides = [data.draw(partitions(of)) for _ in range(3)]
    tokens = data.draw(spans())
    tables = [table(part, tokens, seed) for seed, part in enumerate(sides)]
    first, second, third = (noisy(part, seed) for seed, part in enumerate(sides))
    direct = [[region.copy() for region in regions] for regions in third]
    fill(sides[0], first, tables[0], content(of, tokens.stop), Span(0, of.num_layers), tokens)
    apply_plan(plan_remap(sides[0], sides[1], *tables[:2], tokens), first, second)
    apply_plan(plan_remap(sides[1], sides[2], *tables[1:], tokens), second, third)
    plan = plan_remap(sides[0], sides[2], tables[0], tables[2], tokens)
    apply_plan(plan, first, direct)
    assert same(third, direct)


@DEEP
@given(st.data())
def test_no_two_fragments_could_be_one(data):
    """Byte by byte: a run ends only where the next byte comes from elsewhere."""
    of = data.draw(shapes())
    source, into, tokens = data.draw(partitions(of)), data.draw(partitions(of)), data.draw(spans())
    ids = [list(range(part.num_blocks)) for part in (source, into)]
    if data.draw(st.booleans()):
        ids = [found[::-1] for found in ids]
    tables = [type(table(source, tokens))(block_ids=tuple(found)) for found in ids]
    plan = plan_remap(source, into, *tables, tokens)
    check_cover(plan)
    came = {}
    for copy in plan.copies:
        for at in np.ndindex(copy.counts):
            out = copy.source_offset + sum(np.multiply(at, copy.source_strides))
            to = copy.destination_offset + sum(np.multiply(at, copy.destination_strides))
            for byte in range(copy.run_nbytes):
                place = (copy.destination_rank, copy.destination_region, to + byte)
                came[place] = (copy.source_rank, copy.source_region, out + byte)
    ends = 0
    for (rank, region, offset), (sender, place, byte) in came.items():
        ends += came.get((rank, region, offset + 1)) != (sender, place, byte + 1)
    found = fragments(plan.copies)
    assert len(found.nbytes) == ends
    assert found.nbytes.sum() == len(came) == plan.nbytes


@DEEP
@given(st.data())
def test_takers_are_spread_evenly_over_replicas(data):
    of = shape(data.draw(st.sampled_from([1, 2, 4])), num_layers=4)
    tp, takers = data.draw(st.sampled_from([4, 8])), data.draw(st.sampled_from([1, 2, 4, 8]))
    rotation = data.draw(st.integers(0, 8))
    make = {"shape": of, "block_size": 8, "num_blocks": 2}
    source, into = Partition(tp_size=tp, **make), Partition(tp_size=takers, **make)
    tokens = Span(0, 9)
    tables = table(source, tokens), table(into, tokens)
    plan = plan_remap(source, into, *tables, tokens, rotation=rotation)
    loads = Counter()
    for copy in plan.copies:
        loads[copy.source_rank] += copy.nbytes
    for head in range(of.num_heads):
        of_head = [loads[rank] for rank in source.holders(0, head)]
        of_one = 9 * of.token_nbytes // of.num_heads
        assert max(of_head) - min(of_head) <= of_one
        assert sum(of_head) == of_one * max(1, takers // of.num_heads)


@pytest.mark.parametrize("order", ["layer,block,kv,head,slot,dim", "kv,layer,head,slot,block,dim"])
def test_addresses_of_rows_are_all_different(order):
    of = shape(2, num_layers=3, dtype_v="float32")
    part = Partition(shape=of, axes=AxisOrder(order=order), tp_size=4, block_size=4, num_blocks=5)
    rows = Rows(part, table(part, Span(0, 20)))
    grid = np.meshgrid(range(3), range(2), range(20), indexing="ij")
    found = [
        rows.of(rank, plane, *grid).ravel() for rank in range(part.num_ranks) for plane in (0, 1)
    ]
    flat = np.concatenate(found)
    held = flat[flat >= 0]
    assert len(set(held.tolist())) == len(held) == 4 * 2 * 3 * 20
