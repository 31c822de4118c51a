"""`baton provision`: what it answers on a small trace, and what it refuses before simulating."""

import json

import pytest
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError

WORDS = ("--model", "llama-3.1-8b", "--machines", "h100,a100", "--predictor", "roofline")
LESS = ("--constants", "simulator", "--duration", "5", "--seeds", "0,1,2")


@pytest.fixture
def trace(tmp_path):
    """Forty requests in the Azure format."""
    path = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:15:{n:02d}.0000000,{3000 + 97 * n},{40 + n}" for n in range(40)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return path


def run(*words):
    return CliRunner().invoke(app, ["provision", *map(str, words)])


def test_a_rate_gets_designs_with_both_clocks_and_what_was_left_out(trace, tmp_path):
    out = tmp_path / "answer.json"
    found = run("--trace", trace, "--rate", 40, "--json", out, *WORDS, *LESS)
    assert found.exit_code == 0, found.output
    for word in ("best cost first", "TTFT ms", "TPOT ms", "binds", "'simulator'", "simulated"):
        assert word in found.output
    (answer,) = json.loads(out.read_text())
    designs = answer["designs"]
    assert {one["name"] for one in designs} >= {"HH", "AA", "HA", "H mixed", "A mixed"}
    assert [one["cost"] for one in designs] == sorted(one["cost"] for one in designs)
    assert designs[0]["is_on_front"]
    assert all(len(one["figures"]) == 3 for one in designs)
    assert "roofline" in answer["predictors"]["a100"].lower()
    assert "WARNING: a100: step times are the roofline's" in found.output
    assert len(answer["warnings"]) == 2


def test_of_equal_fleets_one_has_the_star_and_the_others_name_it(trace, tmp_path):
    out = tmp_path / "answer.json"
    fleets = ("--fleet", "1xh100:2xh100", "--fleet", "2xh100:1xh100", "--step", 1000)
    found = run("--trace", trace, *fleets, "--json", out, *WORDS, *LESS)
    assert found.exit_code == 0, found.output
    first, second = json.loads(out.read_text())[0]["designs"]
    assert first["rate"] == second["rate"], "neither serves a thousand"
    assert (first["same_as"], first["is_on_front"], second["is_on_front"]) == ("", True, True)
    assert second["same_as"] in ("1xh100:2xh100", "2xh100:1xh100")
    rows = [line for line in found.output.splitlines() if "xh100:" in line]
    assert [line[0] for line in rows] == ["*", "="]


def test_a_model_must_be_named(trace):
    found = run("--trace", trace, "--rate", 5)
    assert "--model is missing: a name" in str(found.exception)


def test_a_fleet_is_judged_on_every_trace(trace):
    found = run("--trace", trace, "--also", trace, "--fleet", "1xh100:1xh100", *WORDS, *LESS,
                "--step", 20)  # fmt: skip
    assert found.exit_code == 0, found.output
    assert found.output.count("1xh100:1xh100") >= 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "exactly one of --rate, --budget and --fleet"),
        (("--rate", "5", "--budget", "cost:100"), "exactly one"),
        (("--rate", "-1"), "above 0"),
        (("--rate", "5", "--also", "x.csv"), "name them by --fleet"),
        (("--rate", "5", "--objective", "speed"), "--objective 'speed': use one of cost"),
        (("--rate", "5", "--objective", "throughput"), "needs a budget"),
        (("--rate", "5", "--seeds", "1,2"), "--seeds '1,2'"),
        (("--rate", "5", "--constants", "papr"), "nearest: paper"),
        (("--rate", "5", "--machines", "h100,b200"), "no price of 'b200'"),
        (("--rate", "5", "--machines", "h100,h100"), "name each type once"),
        (("--rate", "5", "--model", "llama-3.1-9b"), "llama-3.1-8b"),
        (("--rate", "5", "--machines", "h101"), "h100"),
        (("--rate", "5", "--predictor", "guess"), "guess"),
        (("--budget", "cost:1"), "buys no"),
        (("--fleet", "9999999999xh100"), "9999999999 machines; at most 4096"),
        (("--budget", "machines:1e9"), "--budget machines:1e+09 buys 1e+09 machines of one type"),
        (("--rate", "5", "--step", "inf"), "--step inf: requests/s between two rates"),
        (("--rate", "5", "--cv", "inf"), "--cv inf: variation of the gaps between arrivals, from"),
        (("--rate", "5", "--spill", "-1"), "--spill -1: prompt tokens"),
        (("--rate", "5", "--max-machines", "0"), "--max-machines 0: machines of one pool, from 1"),
        (("--rate", "5", "--slo-scale", "nan"), "--slo-scale nan: a factor"),
        (
            ("--rate", "1e9"),
            "1e+09 requests/s for 120 s are 1.2e+11 requests; one simulation takes",
        ),
        (("--rate", "5", "--utilization", "2"), "--utilization 2: the share"),
        (("--rate", "5", "--duration", "inf"), "--duration inf: seconds"),
        (("--rate", "5", "--link-gbits", "inf"), "--link-gbits inf: "),
        (("--rate", "5", "--data", "tests"), "--data tests: holds no measurements of step times"),
        (("--fleet", "3xa100:1xb7"), "'b7' is not known here; known are h100, a100"),
    ],
)
def test_what_cannot_be_answered_is_refused_and_says_why(trace, words, text):
    found = run("--trace", trace, *WORDS, *words)
    assert isinstance(found.exception, ConfigError)
    assert text.lower() in str(found.exception).lower()


def test_a_model_that_does_not_fit_says_what_does(trace):
    words = ("--model", "bloom-176b", "--machines", "a100", "--utilization", "0.3")
    found = run("--trace", trace, "--rate", 5, *words, "--predictor", "roofline")
    assert isinstance(found.exception, ConfigError)
    assert "bloom-176b does not fit a100_sxm" in str(found.exception).lower()
    assert "the least that fits is TP" in str(found.exception)
