"""Measured runs of vLLM: read, put on the fast host, compared; and how close it comes."""

import csv
import json

import numpy as np
import pytest
from tests.data import data_file
from tests.hardware.test_layer_tables import attention_rows, write

from baton.errors import ConfigError
from baton.hardware.layers.collectives import Link
from baton.hardware.layers.cut import Cut
from baton.hardware.model import find_model
from baton.planner.truth.__main__ import main
from baton.planner.truth.case import Engine, read_case, read_cases, read_engine
from baton.planner.truth.errors import compare
from baton.planner.truth.peer import peer_errors
from baton.planner.truth.predict import deployment_of, kv_tokens, predict

LLAMA = "meta-llama/Llama-3.1-8B"
MIXTURE = "Qwen/Qwen3-30B-A3B-Instruct-2507"


def settings(**changed):
    """What a run's JSON holds, as far as it is read."""
    arguments = {
        "model": LLAMA, "tensor_parallel_size": 1, "data_parallel_size": 1,
        "enable_expert_parallel": False, "max_num_seqs": 8, "max_num_batched_tokens": 256,
        "max_model_len": None,
    }  # fmt: skip
    instance = {
        "model_name": LLAMA,
        "hardware": "GPU",
        "npu_mem": {"mem_size": 24, "mem_bw": 1008, "mem_latency": 0, "mem_util": 0.9},
        "tp_size": 1,
    }
    document = {
        "vllm_meta": {"schema_version": 1, "engine_kwargs": arguments},
        "sim_config": {
            "link_bw": 16, "link_latency": 20000, "nodes": [{"instances": [instance]}],
        },
    }  # fmt: skip
    arguments.update(changed.pop("arguments", {}))
    instance["npu_mem"].update(changed.pop("memory", {}))
    document["vllm_meta"].update(changed.pop("meta", {}))
    document["sim_config"].update(changed)
    return document


ROWS = [
    # Out of order, as a file may be.
    {"arrival_s": 0.2, "prompt_tokens": 40, "output_tokens": 3},
    {"arrival_s": 0.0, "prompt_tokens": 300, "output_tokens": 20},
    {"arrival_s": 0.1, "prompt_tokens": 64, "output_tokens": 1},
]


@pytest.fixture
def folder(tmp_path):
    """One case that was not measured, and layer timings by a law."""
    timings = tmp_path / "layer-profiles" / "GPU" / LLAMA / "bf16" / "tp1"
    timings.mkdir(parents=True)
    layers = ("embedding", "layernorm", "qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    dense = [f"{name},{n},{5.0 + n}" for name in layers for n in (1, 16, 64, 256)]
    write(timings / "dense.csv", ["layer,tokens,time_us", *dense])
    heads = [f"lm_head,{n},{400 + n}" for n in (1, 8, 16)]
    write(timings / "per_sequence.csv", ["layer,sequences,time_us", *heads])
    write(timings / "attention.csv", attention_rows())
    put(tmp_path, "mine", settings(), ROWS)
    return tmp_path


def put(folder, name, document, rows):
    (folder / f"{name}.meta.json").write_text(json.dumps(document))
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def test_a_case_is_read_in_the_order_of_its_arrivals(folder):
    (case,) = read_cases(folder)
    assert case.name == "mine"
    assert case.arrival_us.tolist() == [0.0, 100_000.0, 200_000.0]
    assert case.num_prompt.tolist() == [300, 64, 40]
    assert case.measured == {}
    assert case.engine == Engine(
        model=LLAMA, system="GPU", cut=Cut(), max_num_seqs=8, max_batch_tokens=256,
        memory_nbytes=24 * 2**30, utilization=0.9,
        link=Link(bytes_per_us=16_000.0, latency_us=20.0),
    )  # fmt: skip


def test_measured_columns_keep_their_requests(folder):
    rows = [
        {**row, "ttft_ms": 10.0 * row["output_tokens"], "tpot_ms": 1.0, "latency_ms": 2.0}
        for row in ROWS
    ]
    put(folder, "mine", settings(), rows)
    case = read_case(folder / "mine.meta.json")
    assert case.measured["ttft_ms"].tolist() == [200.0, 10.0, 30.0]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"vllm_meta": {}}, "vllm_meta.engine_kwargs is missing"),
        (settings(nodes=[]), "sim_config.nodes.0.instances.0 is missing"),
        (settings(link_bw="fast"), "link_bw is 'fast'; a number is needed"),
        (settings(memory={"mem_size": None}), "mem_size is None"),
    ],
)
def test_settings_that_lack_something_name_the_field(folder, document, text):
    put(folder, "mine", document, ROWS)
    with pytest.raises(ConfigError, match=text) as caught:
        read_engine(folder / "mine.meta.json")
    assert "mine.meta.json" in str(caught.value)


def test_a_folder_without_cases_and_a_case_without_requests_are_refused(folder, tmp_path_factory):
    with pytest.raises(ConfigError, match=r"no CASE\.meta\.json"):
        read_cases(tmp_path_factory.mktemp("empty"))
    (folder / "mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n")
    with pytest.raises(ConfigError, match="no requests"):
        read_cases(folder)


def test_tokens_of_kv_are_what_memory_leaves_beside_the_weights():
    def engine(**changed):
        fields = {
            "model": LLAMA, "system": "GPU", "cut": Cut(), "max_num_seqs": 8,
            "max_batch_tokens": 256, "memory_nbytes": 24.0 * 2**30, "utilization": 0.9,
            "link": Link(bytes_per_us=1.0, latency_us=0.0),
        }  # fmt: skip
        return Engine(**{**fields, **changed})

    llama = find_model(LLAMA)
    left = 0.9 * 24 * 2**30 - llama.weight_nbytes
    found = kv_tokens(engine(), llama)
    # 131,072 bytes of a token, whole blocks of 16.
    assert found == int(left / 131_072 / 16) * 16
    assert kv_tokens(engine(num_blocks=100), llama) == 1600
    half = kv_tokens(engine(cut=Cut(tp=2)), llama)
    assert half == int((0.9 * 24 * 2**30 - llama.weight_nbytes / 2) / 65_536 / 16) * 16
    with pytest.raises(ConfigError, match=r"leaves no K/V: 15\.0 GiB of weights in 0\.5 of 24\.0"):
        kv_tokens(engine(utilization=0.5), llama)
    mixture = find_model(MIXTURE)
    ranks = engine(cut=Cut(dp=2, is_expert_parallel=True), memory_nbytes=96.0 * 2**30)
    experts = 2 * mixture.all_expert_parameters
    weights = mixture.weight_nbytes - experts + experts / 2
    left = 0.9 * 96 * 2**30 - weights
    assert kv_tokens(ranks, mixture) == int(left / mixture.token_nbytes / 16) * 16


def test_settings_become_the_engine_that_vllm_was(folder):
    (case,) = read_cases(folder)
    (group,) = deployment_of(case, folder / "layer-profiles").groups
    assert (group.max_num_seqs, group.max_batch_tokens) == (8, 256)
    assert group.num_workers == 1 and not group.steps_together
    assert group.queues_at_worker and group.looks_ahead and group.keeps_preempted


def test_prediction_of_a_lone_request_is_its_steps_end_to_end(folder):
    put(folder, "mine", settings(), [{**ROWS[1], "prompt_tokens": 200, "output_tokens": 3}])
    (case,) = read_cases(folder)
    found = predict(case, folder / "layer-profiles")
    (group,) = found.deployment.groups
    prompt_us = group.curves.step_us([chunk(200)], []) + group.step_overhead_us
    first_us = group.curves.step_us([], [201]) + group.step_overhead_us
    second_us = group.curves.step_us([], [202]) + group.step_overhead_us
    assert found.columns["ttft_ms"][0] == pytest.approx(prompt_us / 1e3)
    assert found.columns["tpot_ms"][0] == pytest.approx((first_us + second_us) / 2e3)
    assert found.num_steps == 3


def chunk(num_rows):
    from baton.policy.phase_cost import PrefillRows

    return PrefillRows(num_rows=num_rows)


def test_errors_are_percent_of_what_was_measured():
    found = {name: np.array([110.0, 90.0, 40.0]) for name in ("ttft_ms", "tpot_ms", "latency_ms")}
    found["tpot_ms"][0] = np.nan  # an answer of one token
    truth = {"ttft_ms": np.array([100.0, 50.0, 50.0]), "tpot_ms": np.array([np.nan, 52.0, 52.0])}
    errors = {error.name: error for error in compare(found, truth)}
    assert errors["TTFT mean"].percent == pytest.approx(20.0)
    assert errors["TTFT median"].percent == pytest.approx(80.0)
    assert errors["TPOT mean"].percent == pytest.approx(25.0)
    assert errors["latency mean"].percent is None


def test_the_command_prints_a_table_and_writes_the_requests(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["--data", str(folder), "--requests", str(out)]) == 0
    said = capsys.readouterr().out
    assert "mine: 3 requests, TP1" in said and "TTFT P99" in said
    rows = list(csv.DictReader((out / "mine.predicted.csv").open()))
    assert [row["prompt_tokens"] for row in rows] == ["300", "64", "40"]
    assert all(float(row["ttft_ms"]) > 0 for row in rows)


def test_the_command_refuses_in_one_line(folder, tmp_path, capsys):
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert "no CASE.meta.json" in capsys.readouterr().err
    put(folder, "mine", settings(arguments={"tensor_parallel_size": 4}), ROWS)
    assert main(["--data", str(folder)]) == 2
    assert "no layer timings of tp4; there are: tp1" in capsys.readouterr().err


def test_the_peer_is_known_by_the_cases_name():
    assert peer_errors("RTXPRO6000_Qwen3-30B-A3B-Instruct-2507")[0] == -13.6
    assert peer_errors("RTXPRO6000_Qwen3-32B")[3] == 0.8
    assert peer_errors("mine") is None


BOUNDS = {
    "TTFT mean": 2.5,
    "TTFT median": 7.0,
    "TTFT P99": 2.0,
    "TPOT mean": 0.6,
    "TPOT P99": 2.5,
    "latency mean": 1.5,
}
"""Percent: what the two published runs show, and little more."""


@pytest.mark.parametrize("name", ["RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B"])
def test_published_runs_are_predicted(name):
    meta = data_file(f"vllm-truth/{name}.meta.json")
    case = read_case(meta)
    profiles = meta.parent / "layer-profiles"
    predict(case, profiles)
    found = predict(case, profiles)
    assert found.wall_s < 1.0
    assert found.num_extrapolated == 0
    for error in compare(found.columns, case.measured):
        assert error.percent is not None
        assert abs(error.percent) <= BOUNDS[error.name], (error.name, error.percent)


@pytest.mark.parametrize(
    ("model", "system", "arguments", "memory"),
    [
        (MIXTURE, "RTXPRO6000", {"data_parallel_size": 2, "enable_expert_parallel": True}, {}),
        (LLAMA, "RTX4090", {}, {"mem_size": 24, "mem_util": 0.85}),
    ],
)
def test_other_published_timings_serve_the_same_requests(
    tmp_path, model, system, arguments, memory
):
    """Ranks with experts spread over them, and a GPU too small for its batch: nothing is lost."""
    truth = data_file("vllm-truth/RTXPRO6000_Llama-3.1-8B.csv")
    document = settings(
        arguments={"model": model, "max_num_seqs": 128, "max_num_batched_tokens": 2048} | arguments,
        memory={"mem_size": 96} | memory,
    )
    document["sim_config"]["nodes"][0]["instances"][0]["hardware"] = system
    (tmp_path / "case.meta.json").write_text(json.dumps(document))
    (tmp_path / "case.csv").write_bytes(truth.read_bytes())
    case = read_case(tmp_path / "case.meta.json")
    found = predict(case, truth.parent / "layer-profiles")
    again = predict(case, truth.parent / "layer-profiles")
    (group,) = found.deployment.groups
    assert group.num_workers == case.engine.cut.dp
    assert all(np.isfinite(values).all() for values in found.columns.values())
    assert found.columns["ttft_ms"].tobytes() == again.columns["ttft_ms"].tobytes()
    assert (found.num_preempted > 0) == (system == "RTX4090")
