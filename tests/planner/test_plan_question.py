"""What can be wrong with a question is said with the flag, the value and the remedy."""

from unittest import mock

import pytest
from tests.planner.plans import TARGETS, write_trace
from tests.policy.profiles import make_profile
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError
from baton.planner.goodput.draws import Arrivals
from baton.planner.plan.inputs import load_inputs
from baton.planner.plan.question import Question, targets_of, time_ms
from baton.profile_file import save_profile


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200", 200), ("200ms", 200), ("0.2s", 200), (" 1.5 s ", 1500), ("250us", 0.25), ("1e3", 1e3)],
)
def test_times_with_and_without_a_unit(text, ms):
    assert time_ms("--ttft", text) == pytest.approx(ms)


@pytest.mark.parametrize("text", ["", "fast", "200 min", "-5", "0", "nan", "inf", "1..2", "0.0001"])
def test_what_is_no_time_is_refused_with_the_flag(text):
    with pytest.raises(ConfigError, match=r"--tpot .*such as 200, 200ms or 0.2s"):
        time_ms("--tpot", text)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_an_attainment_is_a_share(share):
    with pytest.raises(ConfigError, match="--attainment"):
        targets_of("200", "50", share)


def question(tmp_path, **changed):
    given = {
        "trace": write_trace(tmp_path / "trace.csv", num=50),
        "targets": TARGETS,
        "gpus": 8,
        "model": "Llama-3.1-8B",
        "system": "h100_sxm",
    }
    return Question(**{**given, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gpus": 1}, r"--gpus 1: .* on 2 or more"),
        ({"rate_per_s": 0.0}, "--rate 0"),
        ({"safety": 1.0}, "--safety 1"),
        ({"kv_tokens": 0}, "--kv-tokens 0"),
        ({"route": "nearest"}, "--route 'nearest': use one of shortest_queue"),
        ({"gpus": 10**12}, "--gpus 1000000000000: at most 65536"),
        ({"num_requests": 10**12}, "--requests 1000000000000: at most"),
        ({"kv_tokens": 10**20}, "--kv-tokens 1000.*: 1 to 1000000000000"),
        ({"utilization": 2.0}, "--utilization 2: the share .* above 0 and at most 1"),
        ({"arrivals": Arrivals.GAMMA}, "--cv is missing: --arrivals gamma"),
        ({"arrivals": Arrivals.GAMMA, "cv": float("nan")}, "--cv nan: .* 0.01 to 10"),
        ({"cv": 2.0}, "--cv 2 has no effect on --arrivals poisson"),
        ({"model": ""}, "name a --model, or a --profile"),
        ({"system": ""}, "name a --system, or a --profile"),
    ],
)
def test_questions_without_a_meaning_are_refused(tmp_path, changed, message):
    with pytest.raises(ConfigError, match=message):
        question(tmp_path, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "Llama-3.1-71B"}, "Llama-3.1-70B"),
        ({"system": "h100_sxn"}, "h100_sxm"),
        ({"predictor": "rooflin"}, "roofline"),
        ({"model": "Llama-3.1-405B"}, r"the least that fits is TP\d+ PP\d+"),
        ({"model": "Llama-3.1-70B", "gpus": 12}, "not whole nodes of 8"),
    ],
)
def test_names_and_sizes_that_do_not_fit_are_told_with_what_would(tmp_path, changed, message):
    with pytest.raises(ConfigError, match=message):
        load_inputs(question(tmp_path, **changed))


def test_a_trace_that_no_instance_holds_is_refused(tmp_path):
    trace = write_trace(tmp_path / "long.csv", num=5, prompt=4000, sigma=0.1)
    with pytest.raises(ConfigError, match=r"longer than the 1000 tokens .*use more GPUs"):
        load_inputs(question(tmp_path, trace=trace, kv_tokens=1000))


def test_a_profile_needs_neither_model_nor_system(tmp_path):
    save_profile(make_profile(), tmp_path / "profile.json")
    asked = question(tmp_path, model="", system="", profile=tmp_path / "profile.json", gpus=2)
    inputs = load_inputs(asked)
    assert inputs.is_profiled and inputs.model.name == "known"
    assert inputs.choice.predictor.name == "profile"
    assert [str(one.parallel) for one in inputs.space.candidates] == ["TP1 PP1"]


def test_a_trace_without_arrivals_has_no_rate_of_its_own(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "100,20\n" * 30)
    inputs = load_inputs(question(tmp_path, trace=path, format="lengths"))
    assert inputs.own_rate_per_s == 0 and inputs.longest == 120


def test_gamma_gaps_are_drawn_with_their_variation(tmp_path):
    inputs = load_inputs(question(tmp_path, arrivals=Arrivals.GAMMA, cv=2.0))
    assert (inputs.draws.arrivals, inputs.draws.cv) == (Arrivals.GAMMA, 2.0)


@pytest.mark.parametrize("flag", ["--html", "--json", "--out-dir"])
def test_a_place_that_cannot_be_written_is_told_before_the_search(tmp_path, flag):
    trace = write_trace(tmp_path / "trace.csv", num=50)
    words = ["--model", "Llama-3.1-8B", "--system", "h100_sxm", "--gpus", 2]
    words += ["--ttft", 300, "--tpot", 12, flag, trace / "below-a-file"]
    with mock.patch("baton.planner.plan.inputs.load_inputs", side_effect=AssertionError):
        found = CliRunner().invoke(app, ["plan", "--trace", str(trace), *map(str, words)])
    assert isinstance(found.exception, ConfigError)
    assert str(found.exception).startswith(f"{flag} {trace}/below-a-file cannot be written: ")
