"""Rows of deployments: what is read, what it means, what is refused; no data needed."""

import csv
import gzip

import pytest

from baton.errors import ConfigError
from baton.planner.predict.case import case_of
from baton.planner.predict.rows import PREDICTED, Row, read_table, write_table

PLAIN = {
    "backend": "vllm",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "mode": "agg",
    "isl": "1024",
    "osl": "128",
    "batch_size": "16.0",
    "concurrency": "16",
    "tp_size": "2.0",
}
MIXTURE = PLAIN | {
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "b200_sxm",
    "precision": "fp8",
}
SPLIT = {
    "backend": "trtllm",
    "model_path": "deepseek-ai/DeepSeek-V3",
    "system": "b200_sxm",
    "mode": "disagg",
    "isl": "1024",
    "osl": "1024",
    "concurrency": "180",
    "prefill_tp_size": "1",
    "prefill_attention_dp_size": "4",
    "prefill_moe_ep_size": "4",
    "prefill_num_workers": "1",
    "decode_tp_size": "8",
    "decode_moe_ep_size": "8",
    "decode_num_workers": "5",
}


def write(path, rows):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def case(**changed):
    return case_of(Row(7, PLAIN | changed))


def mixture(**changed):
    return case_of(Row(7, MIXTURE | changed)).prefill.sharding


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_table_goes_through_with_predictions_behind_its_columns(tmp_path, name):
    table = read_table(write(tmp_path / name, [PLAIN]))
    assert not table.is_measured and table.rows[0].text("model_path") == "Qwen/Qwen3-32B"
    write_table(tmp_path / f"out-{name}", table, [("1.0", "2.0", "somewhere", "false")])
    again = read_table(tmp_path / f"out-{name}")
    assert again.names == (*PLAIN, *PREDICTED)
    assert again.rows[0].number("predicted_tpot_ms") == 2.0


def test_unknown_columns_are_named_with_the_known_ones(tmp_path):
    path = write(tmp_path / "a.csv", [PLAIN | {"gpu_colour": "green"}])
    with pytest.raises(ConfigError, match=r"column 'gpu_colour' is not known; use .*batch_size"):
        read_table(path)


def test_missing_columns_are_named(tmp_path):
    path = write(tmp_path / "a.csv", [{k: v for k, v in PLAIN.items() if k != "osl"}])
    with pytest.raises(ConfigError, match="no column osl"):
        read_table(path)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"backend": "tgi"}, r"line 7: backend is 'tgi'; use one of vllm, sglang, trtllm"),
        ({"mode": "both"}, r"line 7: mode is 'both'; use agg or disagg"),
        ({"isl": "long"}, r"line 7: isl is 'long'; give a number"),
        ({"osl": "0"}, r"line 7: osl is 0; at least 1"),
        ({"system": "h1000_sxm"}, r"line 7: system 'h1000_sxm' is not known; nearest: h100_sxm"),
        ({"model_path": "Qwen/Qwen3-31B"}, r"line 7: .*nearest"),
        ({"precision": "fp3"}, r"line 7: gemm_quant_mode or precision is 'fp3'"),
        ({"batch_size": "", "concurrency": ""}, r"line 7: batch_size and concurrency are both"),
        ({"tp_size": "-2"}, r"^line 7: tp_size is '-2'; give a number from 0 to"),
        ({"tp_size": "2.5"}, r"^line 7: tp_size is '2.5'; give a whole number"),
        ({"tp_size": "3"}, r"^line 7: tp_size 3 does not divide the 64 heads of Qwen3-32B; use"),
        ({"tp_size": "12"}, r"^line 7: tp_size 12 does not divide the 64 heads"),
        ({"tp_size": "8192"}, r"^line 7: a worker of 8192 GPUs \(TP8192\); at most 4096"),
        ({"pp_size": "65"}, r"^line 7: pp_size 65 is more than the 64 layers of Qwen3-32B"),
        ({"isl": "1e300"}, r"^line 7: isl is '1e300'; give a number from 0 to"),
        ({"silicon_ttft_ms": "fast"}, r"^line 7: silicon_ttft_ms is 'fast'"),
    ],
)
def test_bad_cells_are_named(changed, error):
    with pytest.raises(ConfigError, match=error):
        case(**changed)


def test_a_row_of_another_length_is_kept_and_refused_alone(tmp_path):
    path = write(tmp_path / "a.csv", [PLAIN, PLAIN])
    path.write_text(path.read_text() + "\nvllm,Qwen/Qwen3-32B\n")
    rows = read_table(path).rows
    assert [row.line for row in rows] == [2, 3, 5], "as an editor counts them"
    with pytest.raises(ConfigError, match="line 5: 2 cells, the header has 9"):
        case_of(rows[2])


def test_a_dense_model_with_a_smaller_batch_has_several_workers():
    found = case(batch_size="4")
    assert (found.prefill.num_workers, found.prefill.sharding.tp) == (4, 2)
    assert found.concurrency == 16 and found.decode is None


def test_a_mixture_with_a_smaller_batch_has_attention_of_its_own_on_each_gpu():
    found = mixture(tp_size="8", moe_ep_size="8", moe_tp_size="1", concurrency="128")
    assert (found.tp, found.dp, found.ep, found.gpus) == (1, 8, 8, 8)


def test_splits_that_were_multiplied_are_taken_apart():
    found = mixture(tp_size="64", moe_tp_size="8", moe_ep_size="8")
    assert (found.tp, found.dp, found.moe_tp, found.ep) == (8, 1, 1, 8)
    spread = mixture(tp_size="4", attention_dp_size="4", moe_tp_size="1", moe_ep_size="16")
    assert (spread.tp, spread.dp, spread.ep, spread.gpus) == (1, 4, 4, 4)


def test_experts_over_more_gpus_than_attention_mean_more_ranks():
    found = mixture(tp_size="2", moe_tp_size="4", moe_ep_size="1")
    assert (found.tp, found.dp, found.gpus) == (2, 2, 4)


def test_a_split_deployment_keeps_both_pools():
    found = case_of(Row(2, SPLIT))
    assert found.decode is not None and found.decode.is_given
    assert (found.prefill.sharding.dp, found.decode.num_workers) == (4, 5)
    assert found.quantisation.gemm == "fp8" and found.quantisation.kv_nbytes == 1.0


def test_precision_is_of_the_row_before_the_checkpoint():
    assert case().quantisation.gemm == "bfloat16"
    assert case(precision="fp8").quantisation.gemm == "fp8"
    assert case(precision="fp8", gemm_quant_mode="fp8_block").quantisation.gemm == "fp8_block"
