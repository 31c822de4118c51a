"""The command on measured deployments, and whether what it fits holds on what it has not seen."""

import numpy as np
import pytest
from tests.data import DATA, data_file
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError
from baton.planner.predict.coefficients import PHYSICS, shipped
from baton.planner.predict.errors import accuracy
from baton.planner.predict.features import select
from baton.planner.predict.fitting import Sample, fit, predict
from baton.planner.predict.predict import measured_times, predict_table, prepare
from baton.planner.predict.rows import Table, read_table, write_table

PHYSICS_BOUND, TPOT_BOUND, TTFT_BOUND = 24.0, 18.0, 46.0
"""Percent, a quarter above what was measured: 19.1, 14.1 and 36.7."""
SAMPLE = "aiconfigurator/silicon_e2e_sample.csv.gz"


@pytest.fixture(scope="module")
def colocated():
    """Every third distinct colocated deployment."""
    seen, rows = set(), []
    for row in read_table(data_file(SAMPLE)).rows:
        key = (row.text("silicon_ttft_ms")[:8], row.text("silicon_tpot_ms")[:6])
        if (
            row.text("mode") == "agg"
            and not row.text("system").startswith("gb")
            and key not in seen
        ):
            seen.add(key)
            rows.append(row)
    return rows[::3]


def test_physics_alone_is_near_and_a_held_out_system_keeps_to_its_bound(colocated):
    prepared = prepare(colocated, DATA)
    ttft, tpot = measured_times(colocated)
    held = np.array([row.text("system") == "h200_sxm" for row in colocated])
    physics = accuracy(
        predict(prepared.features, prepared.labels, PHYSICS.effects), ttft, tpot, held
    )
    assert physics.tpot_median < PHYSICS_BOUND
    places = np.flatnonzero(~held)
    sample = Sample(
        features=select(prepared.features, places),
        labels=[prepared.labels[i] for i in places],
        ttft=ttft[places],
        tpot=tpot[places],
        weights=np.ones(len(places)),
    )
    found = accuracy(predict(prepared.features, prepared.labels, fit(sample, 8)), ttft, tpot, held)
    assert found.num_rows > 80
    assert found.tpot_median < TPOT_BOUND and found.ttft_median < TTFT_BOUND


def test_the_command_predicts_every_kind_of_row_and_prints_errors(tmp_path):
    table = read_table(data_file(SAMPLE))
    few = Table(table.names, table.rows[::60])
    write_table(tmp_path / "rows.csv", few, [("1", "1", "", "")] * len(few.rows))
    rows = tmp_path / "rows.csv"
    out = tmp_path / "out.csv.gz"
    found = CliRunner().invoke(
        app, ["predict", "--rows", str(rows), "--data", str(DATA), "--out", str(out)]
    )
    assert found.exit_code == 0, found.output
    assert "TTFT median" in found.output and "disaggregated" in found.output
    again = read_table(out).rows
    assert len(again) == len(few.rows)
    assert all(row.number("predicted_ttft_ms") > 0 for row in again)
    assert all(row.text("is_extrapolated") in ("true", "false") for row in again)


def test_a_row_that_cannot_be_does_not_take_the_others_with_it(tmp_path):
    data_file(SAMPLE)
    names = ("backend", "model_path", "system", "mode", "isl", "osl", "concurrency", "tp_size")
    lines = [
        ("vllm", "Qwen/Qwen3-32B", "h100_sxm", "agg", "1024", "128", "16", "2"),
        ("vllm", "Qwen/Qwen3-31B", "h100_sxm", "agg", "1024", "128", "16", "2"),
        ("vllm", "meta-llama/Llama-3.1-405B", "h100_sxm", "agg", "1024", "128", "16", "1"),
    ]
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("\n".join(",".join(line) for line in (names, *lines)) + "\n")
    words = ["predict", "--data", str(DATA), "--out", str(out), "--rows", str(rows)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert "WARNING: 2 of 3 rows cannot be predicted" in found.output
    good, unknown, large = read_table(out).rows
    assert good.number("predicted_ttft_ms") > 0
    for row, reason in ((unknown, "line 3: model 'Qwen/Qwen3-31B'"), (large, "line 4: Llama-3.1")):
        assert row.text("predicted_ttft_ms") == row.text("predicted_tpot_ms") == ""
        assert row.text("source").startswith(f"refused: {reason}")
    assert "does not fit: with TP1 a GPU holds" in large.text("source")
    rows.write_text("\n".join(",".join(line) for line in (names, *lines[1:])) + "\n")
    with pytest.raises(ConfigError, match="none of 2 rows can be predicted; line 2: model"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_rows_without_measurements_are_predicted_the_same(colocated):
    measured = ("silicon_ttft_ms", "silicon_tpot_ms")
    few = colocated[::40]
    bare = [
        type(row)(row.line, {k: v for k, v in row.cells.items() if k not in measured})
        for row in few
    ]
    names = tuple(name for name in few[0].cells if name not in measured)
    ours, theirs = (
        predict_table(Table(one_names, rows), DATA, shipped())
        for one_names, rows in ((tuple(few[0].cells), few), (names, bare))
    )
    assert not Table(names, bare).is_measured
    assert np.array_equal(ours.times.ttft, theirs.times.ttft)
    assert np.array_equal(ours.times.tpot, theirs.times.tpot)


def test_identity_of_a_row_is_not_used(colocated):
    few = colocated[::40]
    renamed = [type(row)(row.line, row.cells | {"id": f"other {row.line}"}) for row in few]
    names = tuple(few[0].cells)
    ours, theirs = (predict_table(Table(names, rows), DATA, shipped()) for rows in (few, renamed))
    assert np.array_equal(ours.times.ttft, theirs.times.ttft)
