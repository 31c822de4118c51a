"""Which source a model and a system get, and Dynamo's profile point by point."""

import json

import numpy as np
import pytest
from tests.data import DATA, data_file

from baton.errors import ConfigError
from baton.hardware.dynamo_profile import DynamoProfilePredictor
from baton.hardware.instance import instance_of
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import MissingCell, choose_predictor, find_predictor
from baton.hardware.sources import SOURCES, names
from baton.hardware.system import find_system
from baton.policy.phase_cost import PrefillRows

FP8, H200 = find_model("Llama-3.1-8B-FP8"), find_system("h200")


def chosen(model, system, **options):
    return choose_predictor(find_model(model), find_system(system), **options)


def test_without_data_there_is_the_roofline_and_it_says_why():
    choice = chosen("OPT-13B", "a100")
    assert choice.predictor.name == "roofline"
    assert {reason for _, reason in choice.passed_over} == {"no folder of data was named"}


def test_measurements_of_the_very_model_come_first():
    data_file("distserve/profiler-a100-80g.distserve.json")
    data_file("splitwise-sim/perf_model.csv")
    assert chosen("OPT-66B", "a100", data=DATA).predictor.name == "distserve"
    choice = chosen("BLOOM-176B", "h100", data=DATA)
    assert choice.predictor.name == "splitwise"
    assert any("fitted on a100_sxm" in reason for _, reason in choice.passed_over)


def test_operators_serve_models_that_nobody_ran_whole():
    data_file("aiconfigurator/h100_sxm")
    choice = chosen("Llama-3.1-70B", "h100", data=DATA)
    assert choice.predictor.name == "operators"
    model, system, cut = find_model("Llama-3.1-70B"), find_system("h100"), Parallel(tp=4)
    curves = choice.predictor.curves(model, system, cut)
    assert not curves.is_extrapolated and "h100_sxm" in curves.source
    bound = find_predictor(model, system).curves(model, system, cut)
    for rows in (512, 2048, 8192):
        chunk = [PrefillRows(num_rows=rows)]
        assert 0.8 < curves.step_us(chunk, []) / bound.step_us(chunk, []) < 1.25
    for batch in (1, 16, 64):
        visible = [1000] * batch
        assert 0.8 < curves.step_us([], visible) / bound.step_us([], visible) < 1.25
    # Half of the layers for each stage, and a hop.
    staged = choice.predictor.curves(model, system, Parallel(tp=4, pp=2))
    ratio = staged.step_us([], [1000] * 16) / curves.step_us([], [1000] * 16)
    assert staged.pipeline == 2 and 0.5 < ratio < 0.55


def test_operators_of_another_system_are_marked():
    data_file("aiconfigurator/h100_sxm")
    model, system = find_model("Llama-3.1-8B"), find_system("l4")
    curves = find_predictor(model, system, data=DATA).curves(model, system, Parallel())
    assert curves.is_extrapolated and "l4 has no table" in curves.source
    with pytest.raises(MissingCell, match="weights of 4 bytes"):
        find_predictor(model.quantised("float32"), system, data=DATA, name="operators")


def test_every_source_has_a_name_of_its_own_and_is_found_by_it():
    for folder in ("distserve", "splitwise-sim", "dynamo-planner", "vllm-truth", "aiconfigurator"):
        data_file(folder)
    assert len(set(names())) == len(names())
    for source in SOURCES:
        assert source.open(DATA).name == source.name


def test_a_name_wins_and_what_it_lacks_is_an_error():
    data_file("distserve/profiler-a100-80g.vllm.json")
    model, system = find_model("OPT-13B"), find_system("a100")
    one = find_predictor(model, system, data=DATA, name="distserve-vllm")
    assert one.name == "distserve-vllm"
    assert find_predictor(model, system, data=DATA, name="roofline").name == "roofline"
    with pytest.raises(MissingCell, match=r"'splitwise'.*not OPT-13B"):
        find_predictor(model, system, data=DATA, name="splitwise")
    with pytest.raises(ConfigError, match="'distserv' is not known; nearest: distserve"):
        find_predictor(model, system, data=DATA, name="distserv")
    with pytest.raises(ConfigError, match=r"needs a folder of data: .*--data or BATON_DATA"):
        find_predictor(model, system, name="distserve")
    with pytest.raises(ConfigError, match="needs --profile FILE"):
        find_predictor(model, system, name="profile")


def test_a_folder_without_files_is_passed_over(tmp_path):
    choice = chosen("OPT-13B", "a100", data=tmp_path)
    assert choice.predictor.name == "roofline"
    assert any("no such file" in reason for _, reason in choice.passed_over)


def test_an_instance_without_published_capacity_has_the_formulas():
    roofline = find_predictor(FP8, H200)
    found = instance_of(roofline, FP8, H200, Parallel(tp=2), utilization=0.8)
    assert found.gpus == 2 and "0.8 of the memory" in found.kv_source
    assert found.kv_tokens < instance_of(roofline, FP8, H200, Parallel(tp=2)).kv_tokens


@pytest.fixture(scope="module")
def profiled():
    data_file("dynamo-planner/h200_tp1p_tp1d.json")
    return DynamoProfilePredictor(DATA)


def test_dynamos_prefill_points_are_met(profiled):
    found = json.loads((DATA / "dynamo-planner/h200_tp1p_tp1d.json").read_bytes())["prefill"]
    curves = profiled.curves(FP8, H200, Parallel())
    for length, ms in zip(found["prefill_isl"], found["prefill_ttft"], strict=True):
        step = curves.step_us([PrefillRows(num_rows=length)], [])
        assert step == pytest.approx(1000 * ms)


def test_dynamos_decode_points_are_met_where_the_whole_batch_ran(profiled):
    found = json.loads((DATA / "dynamo-planner/h200_tp1p_tp1d.json").read_bytes())["decode"]
    curves = profiled.curves(FP8, H200, Parallel())
    tokens = np.ravel(found["max_kv_tokens"])[0]
    met = 0
    for usage, context, ms, rate in zip(
        *(found[name] for name in ("x_kv_usage", "y_context_length", "z_itl", "z_thpt_per_gpu")),
        strict=True,
    ):
        batch = round(usage * tokens / context)
        if rate * ms / 1000 < 0.9 * batch:
            continue
        step = curves.step_us([], [int(context)] * batch)
        assert step == pytest.approx(1000 * ms, rel=1e-9)
        met += 1
    assert met == 38  # three points of 41 asked for more sequences than ran


def test_dynamos_profile_is_of_one_model_on_one_gpu(profiled):
    assert instance_of(profiled, FP8, H200, Parallel()).kv_tokens == 945_029
    with pytest.raises(MissingCell, match=r"Llama-3.1-8B-FP8, not Llama-3.1-8B of other weights"):
        profiled.curves(find_model("Llama-3.1-8B"), H200, Parallel())
    with pytest.raises(MissingCell, match="measured on one GPU, not with TP2"):
        profiled.curves(FP8, H200, Parallel(tp=2))
    with pytest.raises(MissingCell, match="not h100_sxm"):
        profiled.curves(FP8, find_system("h100"), Parallel())


def test_a_bad_planner_profile_is_named(tmp_path):
    folder = tmp_path / "dynamo-planner"
    folder.mkdir()
    (folder / "h200_tp1p_tp1d.json").write_text('{"prefill": {}}')
    with pytest.raises(ConfigError, match="not a planner profile"):
        DynamoProfilePredictor(tmp_path)
