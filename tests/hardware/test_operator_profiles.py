"""Vidur's and Frontier's profiles: sums of their cells, and what they lack."""

import csv
import gzip
import statistics

import pytest
from tests.data import data_file

from baton.errors import ConfigError
from baton.hardware.missing import MissingCell
from baton.hardware.model import find_model
from baton.hardware.operators.profiled import (
    LAYER_OPERATORS,
    ProfiledAttention,
    all_reduce_us,
    attention_file,
    dense_file,
    dense_us,
)
from baton.hardware.operators.profiled_model import ProfiledModel
from baton.hardware.parallel import Parallel
from baton.hardware.system import find_system
from baton.policy.phase_cost import PrefillRows


@pytest.fixture(scope="module")
def data():
    return data_file("vidur").parent


def read(path):
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def test_one_layer_is_the_sum_of_its_operators(data):
    path = dense_file(data, find_model("Llama-2-70B"), find_system("a100_sxm"))
    knots, values = dense_us(path, 4)
    rows = [
        row
        for row in read(path)
        if row["num_tensor_parallel_workers"] == "4" and float(row["num_tokens"]) == 1024
    ]
    by_hand = statistics.median(
        sum(
            float(row[f"time_stats.{name}.median"]) * (2 if name == "add" else 1) * 1e3
            for name in LAYER_OPERATORS
        )
        for row in rows
    )
    assert values[list(knots).index(1024)] == pytest.approx(by_hand)


def test_attention_is_exact_at_profiled_cells(data):
    model, system = find_model("Llama-2-70B"), find_system("a100_sxm")
    path = attention_file(data, model, system, 2)
    found = ProfiledAttention(path, model, system, 2)
    wanted = {"is_prefill": "False", "batch_size": "16", "kv_cache_size": "1024"}
    row = next(row for row in read(path) if wanted.items() <= row.items())
    names = ("attn_decode", "attn_input_reshape", "attn_output_reshape")
    by_hand = sum(float(row[f"time_stats.{name}.median"]) for name in names) * 1e3
    assert float(found.generation_us(16, 1024)) == pytest.approx(by_hand, rel=1e-6)


def test_a_step_grows_with_its_rows_and_shrinks_with_gpus(data):
    model, system = find_model("Llama-2-70B"), find_system("a100_sxm")
    one, two = (ProfiledModel(data).curves(model, system, Parallel(tp=tp)) for tp in (2, 4))
    small, large = ([PrefillRows(num_rows=n, num_visible=0)] for n in (512, 2048))
    assert one.step_us(small, []) < one.step_us(large, [])
    assert two.step_us(large, [1024] * 8) < one.step_us(large, [1024] * 8)
    assert "vidur/history" in one.source and "a100_sxm tables" in two.source


def test_what_was_not_profiled_is_refused(data):
    source = ProfiledModel(data)
    with pytest.raises(MissingCell, match="TP 16 was not profiled; it has"):
        source.curves(find_model("Llama-2-70B"), find_system("a100_sxm"), Parallel(tp=16))
    with pytest.raises(MissingCell, match="no profile with the dimensions of Qwen3-32B"):
        source.curves(find_model("Qwen3-32B"), find_system("a100_sxm"), Parallel(tp=1))
    with pytest.raises(MissingCell, match="no all-reduce was profiled on h800_sxm"):
        all_reduce_us(data, find_system("h800_sxm"), 1024.0, 8)
    assert "no profile of l4" in (source.lacks(find_model("Llama-2-70B"), find_system("l4")) or "")


def test_a_folder_without_profiles_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no profiles; name the folder"):
        ProfiledModel(tmp_path)
