"""`baton hardware`: lists, tables, JSON and bad input."""

import json

import pytest
from tests.data import DATA, data_file
from tests.policy.profiles import make_profile
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError
from baton.hardware.model import MODELS
from baton.hardware.system import SYSTEMS
from baton.profile_file import save_profile


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    """What is chosen must not depend on who runs the tests."""
    monkeypatch.delenv("BATON_DATA", raising=False)


def ran(*arguments):
    return CliRunner().invoke(app, ["hardware", *map(str, arguments)], catch_exceptions=False)


def test_lists(tmp_path, monkeypatch):
    monkeypatch.delenv("BATON_DATA", raising=False)
    path = tmp_path / "known.json"
    result = ran("--json", path)
    assert result.exit_code == 0
    for name in ("Llama-3.1-70B", "DeepSeek-V3", "h100_sxm", "rtx_pro_6000_server", "roofline"):
        assert name in result.output
    found = json.loads(path.read_bytes())
    assert len(found["models"]) == len(MODELS) and len(found["systems"]) == len(SYSTEMS)
    lacks = {one["name"]: one["lacks"] for one in found["predictors"]}
    assert lacks["roofline"] == "" and "BATON_DATA" in lacks["distserve"]


def test_a_table_of_steps(tmp_path):
    path = tmp_path / "steps.json"
    result = ran("--model", "llama-3.1-70b", "--system", "h100", "--tp", 4, "--json", path)
    assert result.exit_code == 0
    assert "extrapolated" in result.output and "roofline" in result.output
    found = json.loads(path.read_bytes())
    assert found["prefill_ms"]["8192"] > 3 * found["prefill_ms"]["2048"]
    assert found["decode_ms"]["8192"]["64"] > found["decode_ms"]["512"]["64"]
    assert found["kv_tokens"] > 100_000 and found["is_extrapolated"]


def test_a_measured_table_marks_what_lies_beyond_it():
    data_file("splitwise-sim/perf_model.csv")
    result = ran("--model", "bloom", "--system", "a100", "--tp", 8, "--data", DATA)
    assert "Splitwise's medians" in result.output and "extrapolated" not in result.output
    assert "128*" not in result.output.split("decode")[0]
    assert "* beyond what the source measured" in result.output


def test_a_profile_brings_model_and_system(tmp_path):
    path = tmp_path / "profile.json"
    save_profile(make_profile(), path)
    result = ran("--profile", path)
    assert result.exit_code == 0
    assert "measured profile of known" in result.output and "on this" in result.output


def test_a_model_that_does_not_fit_still_has_a_table():
    result = ran("--model", "llama-3.1-405b", "--system", "h100", "--tp", 8)
    assert "K/V capacity of an instance: none" in result.output
    assert "least that fits" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--model", "opt-13b"), "--system is missing"),
        (("--system", "h100"), "--model is missing"),
        (("--model", "opt-13c", "--system", "h100"), "nearest: OPT-13B"),
        (("--model", "opt-13b", "--system", "h1000"), "nearest: h100"),
        (("--model", "opt-13b", "--system", "a100", "--tp", "3"), "does not divide its 40 heads"),
        (("--model", "opt-13b", "--system", "a100", "--weights", "fp9"), "use one of"),
        (("--model", "opt-13b", "--system", "this"), "--profile"),
        (("--data", "/no/such/folder"), "no such folder"),
    ],
)
def test_bad_input_names_what_helps(arguments, text):
    with pytest.raises(ConfigError, match=text):
        ran(*arguments)
