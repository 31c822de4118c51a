"""`baton simulate --model --system`: cuts by role, warnings, and folders that hold nothing."""

import csv
import json

import pytest
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError

WORDS = ("--model", "llama-3.1-70b", "--system", "h100", "--predictor", "roofline")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        rows.writerows([f"2023-11-16 18:15:{n:02d}.0000000", 2000 + n, 20] for n in range(12))
    return path


def run(trace, *words):
    out = trace.with_suffix(".json")
    found = CliRunner().invoke(
        app, ["simulate", "--trace", str(trace), "--json", str(out), *map(str, words)]
    )
    if isinstance(found.exception, ConfigError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return json.loads(out.read_text()), found.output


@pytest.mark.parametrize("host", [(), ("--fast",)])
def test_decode_workers_may_be_cut_otherwise(trace, host):
    split = (*WORDS, *host, "--prefill", 1, "--decode", 1)
    narrow, _ = run(trace, *split, "--tp", 4)
    mixed, _ = run(trace, *split, "--tp", 4, "--decode-tp", 8)
    wide, _ = run(trace, *split, "--tp", 8)
    assert "TP4 PP1, link 200 GB/s, decode TP8 PP1, link 400 GB/s" in mixed["hardware"]
    ttft, tpot = "median_ttft_ms", "median_tpot_ms"
    # Prompts as by the narrow cut, tokens as by the wide one, and K/V memory of each its own.
    assert mixed["latency"][ttft] == pytest.approx(narrow["latency"][ttft], rel=0.02)
    assert mixed["latency"][tpot] == pytest.approx(wide["latency"][tpot], rel=0.02)
    assert wide["latency"][tpot] < 0.8 * narrow["latency"][tpot]
    blocks = [[one["num_blocks"] for one in found["workers"]] for found in (narrow, mixed, wide)]
    assert blocks[1] == [blocks[0][0], blocks[2][1]] and blocks[1][1] > blocks[1][0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*WORDS, "--mixed", 1, "--tp", 4, "--decode-tp", 8), "--decode-tp 8: there are no decode"),
        ((*WORDS, "--tp", 0), "--tp 0: GPUs of each stage"),
        ((*WORDS, "--prefill", 10**20, "--decode", 1), "--prefill 1000.*: at most 64"),
        ((*WORDS, "--mixed", 1, "--blocks", 10**20), "--blocks 1000.*: at most 1000000000000"),
        ((*WORDS, "--mixed", 1, "--tick", 10**20), "--tick 1000.*: at most 1000000000"),
        ((*WORDS[2:], "--model", "x" * 3000, "--mixed", 1), "is not known; nearest"),
        ((*WORDS, "--data", "x" * 3000), "no such folder"),
        ((*WORDS, "--decode-pp", -1), "--decode-pp -1: pipeline stages"),
        (("--hardware", "a100x8-llama70b", "--decode-tp", 2), "--decode-tp 2 belongs to --model"),
        ((*WORDS, "--prefill", 1, "--decode", 1, "--tp", 4, "--decode-tp", 1), "does not fit"),
    ],
)
def test_a_cut_that_cannot_be_is_refused_by_its_flag(trace, words, text):
    with pytest.raises(ConfigError, match=text):
        run(trace, *words)


def test_a_roofline_is_told_beside_its_figures(trace):
    report, text = run(trace, *WORDS, "--tp", 4, "--mixed", 1)
    assert "WARNING    step times are the roofline's: bounds from data sheets" in text
    assert len(report["warnings"]) == 1
    assert run(trace, "--hardware", "a100x8-llama70b")[0]["warnings"] == []


def test_a_folder_without_measurements_is_refused(trace, tmp_path, monkeypatch):
    words = (*WORDS[:4], "--tp", 4, "--mixed", 1)
    with pytest.raises(ConfigError, match=r"--data .*: holds no measurements .*aiconfigurator/"):
        run(trace, *words, "--data", tmp_path)
    monkeypatch.setenv("BATON_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"BATON_DATA .*: holds no measurements"):
        run(trace, *words)
    monkeypatch.setenv("BATON_DATA", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"BATON_DATA .*: no such folder"):
        run(trace, *words)
