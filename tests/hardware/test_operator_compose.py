"""Steps composed from AIConfigurator's tables against sums of their cells by hand."""

import csv
import gzip

import numpy as np
import pytest
from tests.data import data_file

from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.operators.folder import nearest_tables, table_systems
from baton.hardware.operators.sharding import Quantisation, Sharding
from baton.hardware.operators.terms import (
    BATCH_KNOTS,
    CHUNK_KNOTS,
    CONTEXT_KNOTS,
    ROW_KNOTS,
    operator_terms,
)
from baton.hardware.system import find_system

ON_GRID = ModelShape(
    name="on-grid",
    num_layers=3,
    model_dim=4096,
    ffn_dim=6144,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=51200,
)
"""Every matrix of it is one that was measured."""
MIXTURE = ModelShape(
    name="mixture",
    num_layers=5,
    model_dim=4096,
    ffn_dim=0,
    num_heads=64,
    num_kv_heads=4,
    head_dim=128,
    vocab_size=51200,
    num_experts=128,
    experts_per_token=8,
    expert_dim=1536,
)


@pytest.fixture(scope="module")
def tables():
    return nearest_tables(data_file("aiconfigurator").parent, find_system("h100_sxm"))


def cell(name, version="vllm-0.24.0", **wanted):
    """The least latency of the rows with these cells, in microseconds."""
    path = data_file(f"aiconfigurator/h100_sxm/{version}/{name}_perf.csv.gz")
    with gzip.open(path, "rt") as file:
        found = [
            float(row["latency_ms"]) * 1e3
            for row in csv.DictReader(file)
            if all(row[key] in value.split("|") for key, value in wanted.items())
        ]
    assert found, wanted
    return min(found)


def lowered(tables, model, sharding, **precisions):
    system = find_system("h100_sxm")
    return operator_terms(tables, system, model, sharding, Quantisation(**precisions))


def at(knots, place):
    return int(np.flatnonzero(knots == place)[0])


def test_linear_layers_are_the_sum_of_their_cells(tables):
    terms = lowered(tables, ON_GRID, Sharding())
    shapes = [(6144, 4096), (4096, 4096), (12288, 4096), (4096, 6144)]
    for rows in (8, 1024):
        by_hand = 3 * sum(
            cell("gemm", gemm_dtype="bfloat16", m=str(rows), n=str(n), k=str(k)) for n, k in shapes
        )
        assert terms.rows["gemm"][at(ROW_KNOTS, rows)] == pytest.approx(by_hand, rel=1e-9)
    head = cell("gemm", gemm_dtype="bfloat16", m="64", n="51200", k="4096")
    assert terms.head[at(ROW_KNOTS, 64)] == pytest.approx(head, rel=1e-9)
    assert terms.extrapolated == ()


def test_attention_is_the_cell_of_each_layer(tables):
    terms = lowered(tables, ON_GRID, Sharding())
    heads = {"num_heads": "32", "num_key_value_heads": "8", "kv_cache_dtype": "bfloat16"}
    prompt = cell("context_attention", batch_size="1", isl="4096", **heads)
    assert terms.context[at(CHUNK_KNOTS, 4096), 0] == pytest.approx(3 * prompt, rel=1e-9)
    row = cell("generation_attention", batch_size="16", step="1023", **heads)
    found = terms.generation[at(BATCH_KNOTS, 16), at(CONTEXT_KNOTS, 1024)]
    assert found == pytest.approx(3 * row, rel=1e-9)


def test_tensor_parallelism_takes_the_narrow_cells_and_two_all_reduces(tables):
    terms = lowered(tables, ON_GRID, Sharding(tp=2))
    shapes = [(3072, 4096), (4096, 2048), (6144, 4096), (4096, 3072)]
    gemms = [cell("gemm", gemm_dtype="bfloat16", m="1024", n=str(n), k=str(k)) for n, k in shapes]
    assert terms.rows["gemm"][at(ROW_KNOTS, 1024)] == pytest.approx(3 * sum(gemms), rel=1e-9)
    elements = str(1024 * 4096)
    reduce = min(
        cell("custom_allreduce", num_gpus="2", elements=elements, backend="vllm_graph"),
        cell("nccl", "nccl-2.29.2", op_name="all_reduce", nccl_dtype="half", num_gpus="2",
             elements=elements),
    )  # fmt: skip
    assert terms.rows["collective"][at(ROW_KNOTS, 1024)] == pytest.approx(6 * reduce, rel=1e-9)


def test_experts_are_the_quickest_kernel_of_their_cell(tables):
    terms = lowered(tables, MIXTURE, Sharding(tp=8, ep=8), gemm="fp8", moe="fp8_block")
    one = cell(
        "moe", moe_dtype="fp8|fp8_block", num_tokens="128", hidden_size="4096", inter_size="1536",
        topk="8", num_experts="128", moe_tp_size="1", moe_ep_size="8",
        distribution="power_law_1.2",
    )  # fmt: skip
    assert terms.rows["moe"][at(ROW_KNOTS, 128)] == pytest.approx(5 * one, rel=1e-9)


def test_ranks_with_attention_of_their_own_share_the_experts(tables):
    alone = lowered(tables, MIXTURE, Sharding(tp=8, ep=8), gemm="fp8", moe="fp8")
    spread = lowered(tables, MIXTURE, Sharding(dp=8, ep=8), gemm="fp8", moe="fp8")
    assert spread.rows["moe"][at(ROW_KNOTS, 16)] == pytest.approx(
        alone.rows["moe"][at(ROW_KNOTS, 128)]
    )


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "DeepSeek-R1", "Qwen3-235B-A22B", "GLM-5"])
def test_more_rows_take_longer(tables, name):
    terms = lowered(tables, find_model(name), Sharding(tp=8, moe_tp=8), gemm="fp8", moe="fp8")
    rows = np.sum(list(terms.rows.values()), axis=0)
    assert np.all(np.diff(rows[[at(ROW_KNOTS, n) for n in (1, 32, 512, 2048, 8192, 32768)]]) > 0)
    assert np.all(np.diff(terms.context[:, 0][4:]) > 0)
    assert np.all(np.diff(terms.generation[:, at(CONTEXT_KNOTS, 8192)][3:]) > 0)


def test_a_stage_has_its_share(tables):
    whole = lowered(tables, ON_GRID, Sharding())
    stage = lowered(tables, ON_GRID, Sharding(pp=3))
    for name, values in whole.rows.items():
        assert stage.rows[name] == pytest.approx(values / 3)
    assert stage.num_layers == 1


def test_a_system_without_tables_takes_the_nearest_and_says_so(tables):
    data = data_file("aiconfigurator").parent
    assert {"a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm"} <= set(table_systems(data))
    system = find_system("gb200")
    found = nearest_tables(data, system)
    assert found.system.name == "b200_sxm"
    terms = operator_terms(found, system, ON_GRID, Sharding(), Quantisation())
    assert "gb200 has no table: b200_sxm by rooflines" in terms.extrapolated


def test_four_bit_weights_are_extrapolated_and_decode_faster(tables):
    wide = lowered(tables, MIXTURE, Sharding(tp=4, ep=4), gemm="fp8", moe="fp8")
    narrow = lowered(tables, MIXTURE, Sharding(tp=4, ep=4), gemm="fp8", moe="mxfp4")
    assert narrow.rows["moe"][at(ROW_KNOTS, 64)] < wide.rows["moe"][at(ROW_KNOTS, 64)]
    assert any("mxfp4" in one for one in narrow.extrapolated)
