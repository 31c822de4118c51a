"""Every pair of splits, block sizes and axis orders moves every byte to its place."""

import itertools

import pytest

from baton.core.remap.axes import AXIS_ORDERS
from baton.core.remap.span import Span
from baton.errors import RemapRefused
from tests.core.remap.truth import check, shape, side

TP, KV_HEADS, PP, BLOCKS = (1, 2, 4, 8), (1, 2, 3, 4, 8), (1, 2, 4), (8, 16, 32)
ROWS = [name for name, axes in AXIS_ORDERS.items() if not axes.packing]
TOKENS = Span(0, 43)


def is_even(kv_heads: int, tp: int) -> bool:
    return kv_heads % tp == 0 or tp % kv_heads == 0


@pytest.mark.parametrize("kv_heads", KV_HEADS)
@pytest.mark.parametrize("to_tp", TP)
@pytest.mark.parametrize("from_tp", TP)
def test_every_tensor_split_with_every_pipeline_split(from_tp, to_tp, kv_heads):
    of = shape(kv_heads)
    if not (is_even(kv_heads, from_tp) and is_even(kv_heads, to_tp)):
        with pytest.raises(RemapRefused, match="uneven_heads: 3 K/V heads over tp_size"):
            check(side(of, tp=from_tp), side(of, tp=to_tp), TOKENS)
        return
    orders = itertools.cycle(itertools.product(ROWS, ROWS))
    # Begin elsewhere in the pairs of orders for every case, so that together they take all.
    case = TP.index(from_tp) * 20 + TP.index(to_tp) * 5 + KV_HEADS.index(kv_heads)
    pairs = itertools.islice(orders, 9 * case % len(ROWS) ** 2, None)
    sizes = itertools.islice(itertools.cycle(itertools.product(BLOCKS, BLOCKS)), case % 9, None)
    splits = itertools.product(PP, PP)
    for (out, to), (ours, theirs), (stages, others) in zip(pairs, sizes, splits, strict=False):
        source = side(of, out, from_tp, stages, ours, 8)
        plan = check(source, side(of, to, to_tp, others, theirs, 8), TOKENS)
        needed = max(to_tp, kv_heads)
        assert plan.nbytes == needed * of.token_nbytes // kv_heads * TOKENS.size


@pytest.mark.parametrize("sizes", list(itertools.product(BLOCKS, BLOCKS)))
@pytest.mark.parametrize("splits", list(itertools.product(PP, PP)))
def test_every_block_size_with_every_pipeline_split(sizes, splits):
    of = shape(4)
    for tp, others in ((1, 2), (4, 2), (8, 4)):
        source = side(of, "flash-hnd", tp, splits[0], sizes[0], 9)
        check(source, side(of, "BHLNC", others, splits[1], sizes[1], 9), TOKENS)


@pytest.mark.parametrize("out", ROWS)
def test_every_pair_of_orders(out):
    of = shape(4)
    for to in ROWS:
        check(side(of, out, 2, 2, 8, 7), side(of, to, 4, 1, 16, 7), TOKENS)
        check(side(of, out, 8, 1, 16, 7), side(of, to, 2, 2, 16, 7), TOKENS)


@pytest.mark.parametrize("to_tp", TP)
@pytest.mark.parametrize("from_tp", TP)
def test_latent_rows_are_copied_to_every_rank_and_split_by_none(from_tp, to_tp):
    of = shape(8, latent_dim=9, dtype_k="float8")
    for (out, to), (ours, theirs) in zip(
        itertools.product(("LBHNC", "baton", "split"), ("LBNHC", "BLHNC", "baton")),
        itertools.product(BLOCKS, BLOCKS),
        strict=True,
    ):
        for pp, others in ((1, 1), (2, 4), (4, 2)):
            plan = check(
                side(of, out, from_tp, pp, ours, 8), side(of, to, to_tp, others, theirs, 8), TOKENS
            )
            assert plan.nbytes == to_tp * of.token_nbytes * TOKENS.size
            assert {copy.planes for copy in plan.copies} == {"latent"}


@pytest.mark.parametrize("out", ROWS)
@pytest.mark.parametrize("to", ["baton", "LBNHC", "blocks-hnd", "split"])
def test_k_and_v_may_differ_in_width(out, to):
    of = shape(2, head_dim=3, head_dim_v=2, dtype_k="float32")
    check(side(of, out, 1, 2, 16, 7), side(of, to, 2, 1, 8, 7), TOKENS)
    check(side(of, out, 2, 2, 16, 7), side(of, to, 2, 2, 16, 7), TOKENS)


@pytest.mark.parametrize("tp", TP)
@pytest.mark.parametrize("others", TP)
def test_packed_blocks_move_whole_with_their_padding(tp, others):
    of = shape(4)
    plan = check(side(of, "cpu", tp, 2), side(of, "cpu", others), TOKENS)
    assert plan.moves_padding and plan.moved == Span(0, 48) and plan.padding == Span(43, 48)
    assert all(copy.run_nbytes % (8 * sum(of.widths)) == 0 for copy in plan.copies)


@pytest.mark.parametrize("kv_heads", [3, 6])
def test_heads_that_are_no_power_of_two(kv_heads):
    of = shape(kv_heads)
    fits = [tp for tp in (1, 2, 3, 6, 12) if is_even(kv_heads, tp)]
    for tp, others in itertools.product(fits, fits):
        check(side(of, "baton", tp, 2, 8), side(of, "LBNHC", others, 1, 16), TOKENS)
