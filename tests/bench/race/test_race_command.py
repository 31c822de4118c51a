"""`baton race` as a person runs it: refusals at once, and a whole small race of the tiny model."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from baton.bench.race.result import RaceResult
from baton.goodput.record import Outcome

BATON = (sys.executable, "-c", "from baton.cli import main; main()", "race", "--model", "tiny")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*BATON, *arguments), cwd=cwd, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--goodput", "ttft:500"), "a race judges both clocks"),
        (("--goodput", "tpot:0"), "--goodput"),
        (("--rates", "1,zero"), "--rates 'zero'"),
        (("--workload", "nothing"), "--workload nothing"),
        (("--dataset", "missing.csv"), "missing.csv"),
        (("--profile", "missing.json"), "missing.json"),
        (("--html", "nowhere/race.html"), "--html nowhere/race.html cannot be written"),
        (("--attainment", "2"), "--attainment 2"),
        (("--budget", "1"), "--budget"),
        (("--duration", "nan"), "duration_s"),
    ],
)
def test_what_cannot_be_raced_is_refused_before_anything_starts(tmp_path, arguments, named):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "starting" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_small_race_measures_every_arm_and_says_who_won(tmp_path):
    targets = ("--goodput", "ttft:60000 tpot:60000", "--rates", "4")
    done = run(
        *("--no-streams", "--workload", "short-prompt", "--repetitions", "1", "--duration", "5"),
        *(*targets, "--json", "race.json", "--html", "race.html"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = msgspec.json.decode((tmp_path / "race.json").read_bytes(), type=RaceResult)
    assert {cell.arm for cell in result.cells} == {arm.name for arm in result.arms}
    for cell in result.cells:
        assert [record.outcome for record in cell.records] == [Outcome.COMPLETED] * 8
        assert len(cell.phases) == 8, "every request is found again in the traces"
        split = cell.arm == "split"
        assert {record.mode for record in cell.records} == {
            "disaggregated" if split else "colocated"
        }
    (standing,) = result.standings
    # Targets that nobody can miss: every arm ties at the only rate.
    assert {curve.goodput.value for curve in standing.curves.values()} == {4.0}
    assert standing.sentence in done.stdout.replace("\n", " ")
    assert "plotly" in (tmp_path / "race.html").read_text()
