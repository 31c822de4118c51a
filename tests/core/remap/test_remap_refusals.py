"""What cannot be exact is refused, by the name of the field that is in the way."""

import pytest
from msgspec.structs import replace

from baton.core.remap.apply import apply_copy, apply_plan, empty_pools
from baton.core.remap.axes import AxisOrder
from baton.core.remap.block_table import BlockTable
from baton.core.remap.cover import check_cover
from baton.core.remap.partition import Partition
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span
from baton.errors import ConfigError, LocalProtocolError, RemapRefused
from tests.core.remap.truth import check, shape, side

TOKENS = Span(0, 20)
PLAIN = shape(2)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("num_layers", {"num_layers": 6}),
        ("num_kv_heads", {"num_kv_heads": 4}),
        ("head_dim", {"head_dim": 4}),
        ("head_dim_v", {"head_dim_v": 4}),
        ("latent_dim", {"latent_dim": 4}),
        ("dtype_k", {"dtype_k": "float16"}),
        ("dtype_v", {"dtype_v": "float8"}),
        ("scales", {"scales": "9c41"}),
        ("has_row_scales", {"has_row_scales": True}),
    ],
)
def test_shapes_that_differ(name, change):
    other = replace(PLAIN, **change)
    for ours, theirs in ((PLAIN, other), (other, PLAIN)):
        with pytest.raises(RemapRefused) as caught:
            check(side(ours), side(theirs), TOKENS)
        assert caught.value.name == name
        assert str(caught.value).startswith(f"{name}: ")


def test_a_head_dim_of_v_that_equals_its_default_is_no_difference():
    check(side(PLAIN), side(replace(PLAIN, head_dim_v=PLAIN.head_dim)), TOKENS)


def test_latent_caches_do_not_care_for_heads():
    latent = shape(8, latent_dim=6)
    check(side(latent, tp=2), side(replace(latent, num_kv_heads=1, head_dim=64)), TOKENS)


def test_scales_beside_the_rows_are_a_cache_of_their_own():
    quantised = shape(2, dtype_k="float8", dtype_v="float8", has_row_scales=True)
    with pytest.raises(RemapRefused, match="second shape"):
        check(side(quantised), side(quantised), TOKENS)
    scales = shape(2, head_dim=1, dtype_k="float32", dtype_v="float32")
    check(side(scales, tp=2), side(scales), TOKENS)


def test_the_forms_of_float8_are_not_one_type():
    with pytest.raises(RemapRefused, match="'float8_e4m3fn' at the source, 'float8_e5m2' at"):
        check(
            side(shape(2, dtype_k="float8_e4m3fn")), side(shape(2, dtype_k="float8_e5m2")), TOKENS
        )


@pytest.mark.parametrize(
    ("name", "out", "into", "options"),
    [
        ("packing", side(PLAIN, "cpu"), side(PLAIN, "LBHNC"), {}),
        ("packing", side(PLAIN, "baton"), side(PLAIN, "cpu"), {}),
        ("packing", side(PLAIN, "cpu"), side(PLAIN, "cpu", block=16), {}),
        ("whole_blocks", side(PLAIN, "cpu"), side(PLAIN, "cpu"), {"first": (4, 8)}),
        ("whole_blocks", side(PLAIN), side(PLAIN, block=16), {"whole_blocks": True}),
        ("layers", side(PLAIN), side(PLAIN), {"layers": Span(2, 6)}),
    ],
)
def test_pairs_that_do_not_fit(name, out, into, options):
    with pytest.raises(RemapRefused) as caught:
        check(out, into, Span(8, 20), **options)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "tokens", "out", "into"),
    [
        ("source_blocks", TOKENS, (0, 1), (0, 1, 2)),
        ("destination_blocks", TOKENS, (0, 1, 2), (0, 1)),
        ("destination_blocks", TOKENS, (0, 1, 2), (0, 1, 1)),
        ("destination_blocks", TOKENS, (0, 1, 2), (0, 1, 16)),
        ("source_blocks", TOKENS, (0, 1, -1), (0, 1, 2)),
        ("tokens", Span(3, 1), (0, 1, 2), (0, 1, 2)),
        ("tokens", Span(-1, 1), (0, 1, 2), (0, 1, 2)),
    ],
)
def test_tables_that_cannot_be(name, tokens, out, into):
    with pytest.raises(RemapRefused) as caught:
        plan_remap(
            side(PLAIN), side(PLAIN), BlockTable(block_ids=out), BlockTable(block_ids=into), tokens
        )
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("tp_size", {"tp_size": 0}),
        ("block_size", {"block_size": 0}),
        ("num_blocks", {"num_blocks": 0}),
        ("stages", {"stages": (2, 2)}),
        ("stages", {"stages": (5, 0)}),
        ("uneven_heads", {"tp_size": 3}),
    ],
)
def test_partitions_that_no_engine_has(name, fields):
    with pytest.raises(RemapRefused) as caught:
        Partition(**{"shape": PLAIN, "block_size": 8, "num_blocks": 4, **fields})
    assert caught.value.name == name


@pytest.mark.parametrize(
    "fields",
    [
        {"order": "layer,block,kv,head,slot"},
        {"order": "layer,block,kv,head,dim,slot"},
        {"order": "layer,block,kv,head,slot,slot"},
        {"num_apart": 2},
        {"num_apart": -1},
        {"order": "layer,block,slot,head,kv,dim", "packing": "cpu"},
    ],
)
def test_orders_that_mean_nothing(fields):
    with pytest.raises(ConfigError):
        AxisOrder(**fields)


@pytest.mark.parametrize("field", ["num_layers", "num_kv_heads", "head_dim"])
def test_shapes_that_mean_nothing(field):
    with pytest.raises(ConfigError, match=field):
        replace(PLAIN, **{field: 0})


@pytest.mark.parametrize(
    "change",
    [
        {"destination_offset": 1},
        {"source_offset": 0},
        {"run_nbytes": 8},
        {"source_rank": 0},
        {"counts": (1,)},
    ],
    ids=str,
)
def test_the_proof_notices_a_wrong_copy(change):
    tables = [BlockTable(block_ids=(2, 0, 1))] * 2
    plan = plan_remap(side(PLAIN, tp=2), side(PLAIN, "LBNHC", tp=2), *tables, TOKENS)
    check_cover(plan)
    last = next(copy for copy in plan.copies[::-1] if copy.source_offset and len(copy.counts) == 2)
    changed = dict(change, counts=(1, 1)) if "counts" in change else change
    copies = [replace(last, **changed) if copy is last else copy for copy in plan.copies]
    with pytest.raises(LocalProtocolError, match="remap plan"):
        check_cover(replace(plan, copies=tuple(copies)))


@pytest.mark.parametrize("kept", [0, 1])
def test_the_proof_notices_a_copy_too_few_or_too_many(kept):
    tables = [BlockTable(block_ids=(2, 0, 1))] * 2
    plan = plan_remap(side(PLAIN, tp=2), side(PLAIN), *tables, TOKENS)
    copies = plan.copies[1:] if kept == 0 else (*plan.copies, plan.copies[0])
    with pytest.raises(LocalProtocolError, match="remap plan"):
        check_cover(replace(plan, copies=copies))


def test_a_copy_outside_its_allocation_is_not_performed():
    tables = [BlockTable(block_ids=(0, 1, 2))] * 2
    small = side(PLAIN, blocks=3)
    plan = plan_remap(small, small, *tables, TOKENS)
    pools, others = empty_pools(small), empty_pools(small)
    apply_plan(plan, pools, others)
    for change in ({"source_offset": 10**6}, {"destination_offset": -1}, {"run_nbytes": 10**6}):
        with pytest.raises(LocalProtocolError, match="does not fit"):
            apply_copy(replace(plan.copies[0], **change), pools[0][0], others[0][0])
