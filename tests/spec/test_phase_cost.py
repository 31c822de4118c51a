"""Specification 0x02A and 0x02B: the work vectors and bounds of the toy model, to the last unit."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.layout import KVLayout
from baton.errors import ConfigError
from baton.policy.phase_cost import (
    BlockShape,
    PrefillRows,
    Roofline,
    attention_flops,
    bound_us,
    bytes_us,
    compute_us,
    decode_pairs,
    layer_parameters,
    linear_flops,
    mixed_slot_dilation,
    naive_score_scalars,
    prefill_pairs,
    step_work,
    weight_nbytes,
)

LAYOUT = KVLayout(
    num_layers=4, num_kv_heads=2, head_dim=8, block_size=4, dtype_k="float16", dtype_v="float16"
)
SHAPE = BlockShape(layout=LAYOUT, model_dim=64, ffn_dim=160, num_query_heads=8)
ROOFLINE = Roofline(flops_per_us=1e6, nbytes_per_us=1e5)
PREFILL = [PrefillRows(num_rows=16, num_visible=8)]
DECODE = [33, 49, 65]


def test_parameters_and_bytes_per_token():
    assert layer_parameters(SHAPE) == 40_960
    assert weight_nbytes(SHAPE) == 327_680
    assert LAYOUT.bytes_per_token == 256


def test_ridge_is_ten_flops_per_byte():
    assert ROOFLINE.ridge_flops_per_byte == 10


def test_causal_pairs():
    assert prefill_pairs(16, 8) == 264
    assert decode_pairs(DECODE) == 147
    assert step_work(SHAPE, PREFILL, DECODE).causal_pairs == 411


def test_naive_score_scalars():
    assert naive_score_scalars(SHAPE, 264) == 2_112
    assert naive_score_scalars(SHAPE, 147) == 1_176


@pytest.mark.parametrize(
    ("num_rows", "pairs", "linear", "attention"),
    [(16, 264, 5_242_880, 270_336), (3, 147, 983_040, 150_528)],
)
def test_flops_split_into_linear_and_attention(num_rows, pairs, linear, attention):
    assert linear_flops(SHAPE, num_rows) == linear
    assert attention_flops(SHAPE, pairs) == attention


@pytest.mark.parametrize(
    ("prefills", "decodes", "rows", "flops", "read", "write", "total"),
    [
        (PREFILL, [], 16, 5_513_216, 6_144, 4_096, 337_920),
        ([], DECODE, 3, 1_133_568, 37_632, 768, 366_080),
        (PREFILL, DECODE, 19, 6_646_784, 43_776, 4_864, 376_320),
    ],
    ids=["prefill", "decode", "mixed"],
)
def test_work_vectors(prefills, decodes, rows, flops, read, write, total):
    work = step_work(SHAPE, prefills, decodes)
    assert (work.num_rows, work.flops) == (rows, flops)
    assert (work.kv_read_nbytes, work.kv_write_nbytes) == (read, write)
    assert work.weight_nbytes == 327_680, "a mixed step reads the weights once"
    assert work.nbytes == total


@pytest.mark.parametrize(
    ("prefills", "decodes", "intensity", "compute", "state", "bound"),
    [
        (PREFILL, [], 16.315, 5.513216, 3.3792, 5.513),
        ([], DECODE, 3.0965, 1.133568, 3.6608, 3.661),
        (PREFILL, DECODE, 17.663, 6.646784, 3.7632, 6.647),
    ],
    ids=["prefill", "decode", "mixed"],
)
def test_bounds(prefills, decodes, intensity, compute, state, bound):
    work = step_work(SHAPE, prefills, decodes)
    assert work.flops_per_byte == pytest.approx(intensity, abs=5e-4)
    assert compute_us(work, ROOFLINE) == pytest.approx(compute)
    assert bytes_us(work, ROOFLINE) == pytest.approx(state)
    assert round(bound_us(work, ROOFLINE), 3) == bound


def test_mixed_slot_dilation():
    dilation = mixed_slot_dilation(SHAPE, PREFILL, DECODE, ROOFLINE)
    assert round(dilation, 3) == 1.816
    assert dilation == pytest.approx(1.81566, abs=5e-6)


def test_prefill_is_on_the_compute_side_and_decode_on_the_byte_side():
    prefill, decode = step_work(SHAPE, PREFILL), step_work(SHAPE, (), DECODE)
    assert prefill.flops_per_byte > ROOFLINE.ridge_flops_per_byte > decode.flops_per_byte


def with_layout(**changes: int) -> BlockShape:
    return msgspec.structs.replace(SHAPE, layout=msgspec.structs.replace(LAYOUT, **changes))


@pytest.mark.parametrize("kv_heads", [8, 4, 2, 1], ids=["mha", "gqa4", "gqa2", "mqa"])
def test_kv_heads_change_state_bytes_but_no_attention_flops(kv_heads):
    shape = with_layout(num_kv_heads=kv_heads)
    work, base = step_work(shape, (), DECODE), step_work(SHAPE, (), DECODE)
    assert work.kv_read_nbytes == 147 * 4 * kv_heads * 8 * 4
    assert work.kv_read_nbytes * 2 == base.kv_read_nbytes * kv_heads
    assert attention_flops(shape, 147) == attention_flops(SHAPE, 147)
    assert layer_parameters(shape) == 4_096 * 2 + 2 * 64 * kv_heads * 8 + 30_720


def test_a_latent_layout_reads_one_compressed_row_per_token_and_layer():
    shape = with_layout(latent_dim=12)
    work = step_work(shape, (), DECODE)
    assert work.kv_read_nbytes == 147 * 4 * 12 * 2
    assert work.kv_write_nbytes == 3 * 4 * 12 * 2
    assert layer_parameters(shape) == 2 * 64 * 64 + 12 * (64 + 2 * 64) + 3 * 64 * 160


def test_an_empty_step_costs_nothing():
    work = step_work(SHAPE)
    assert work.nbytes == work.flops == 0


@pytest.mark.parametrize("changes", [{"num_query_heads": 7}, {"model_dim": 0}, {"ffn_dim": -1}])
def test_impossible_shapes_are_refused_by_name(changes):
    with pytest.raises(ConfigError, match=f"shape.{next(iter(changes))}"):
        msgspec.structs.replace(SHAPE, **changes)


@given(st.lists(st.integers(1, 200), min_size=2, max_size=6), st.integers(0, 100))
def test_cutting_a_prompt_into_chunks_keeps_pairs_and_writes(cuts, visible):
    whole = step_work(SHAPE, [PrefillRows(num_rows=sum(cuts), num_visible=visible)])
    parts, position = [], visible
    for rows in cuts:
        parts.append(step_work(SHAPE, [PrefillRows(num_rows=rows, num_visible=position)]))
        position += rows
    assert sum(part.causal_pairs for part in parts) == whole.causal_pairs
    assert sum(part.flops for part in parts) == whole.flops
    assert sum(part.kv_write_nbytes for part in parts) == whole.kv_write_nbytes
    assert sum(part.kv_read_nbytes for part in parts) > whole.kv_read_nbytes


@given(
    st.lists(st.builds(PrefillRows, num_rows=st.integers(0, 64), num_visible=st.integers(0, 64))),
    st.lists(st.integers(1, 300), min_size=1, max_size=8),
)
def test_a_shared_slot_is_never_shorter_than_decode_alone(prefills, decodes):
    assert mixed_slot_dilation(SHAPE, prefills, decodes, ROOFLINE) >= 1
