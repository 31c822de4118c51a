"""The catalogue is up to date, planting works, and every planted bug is noticed by its killers."""

import os
import signal
import subprocess
import sys

import pytest

from tests.mutants.catalogue import CATALOGUE, find
from tests.mutants.hunting import CONTROL
from tests.mutants.mutant import MAX_SEEDS, ROOT, ByTests, Explore, Mutant, StaleMutant, Vopr, plant

CASE = Mutant(
    name="case", file="core/finish.py", line="x = 1", planted="x = 2", why="", killer=ByTests(())
)


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_one_line_is_changed_and_keeps_its_indentation():
    assert plant(CASE, "if y:\n    x = 1\nz = 3\n") == "if y:\n    x = 2\nz = 3\n"


@pytest.mark.parametrize("source", ["x = 3\n", "x = 1\nx = 1\n", "x = 1  # why\n"])
def test_a_line_that_is_not_there_exactly_once_is_refused_by_name(source):
    with pytest.raises(StaleMutant, match=r"case: core/finish.py has the line 'x = 1' [02] times"):
        plant(CASE, source)


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_one_line_that_stands_there_once(mutant):
    planted = plant(mutant, mutant.path.read_text())
    compile(planted, mutant.file, "exec")
    assert mutant.why.endswith(".") and mutant.line != mutant.planted
    killer = mutant.killer
    if isinstance(killer, Vopr):
        assert killer.checkers and killer.seeds and max(killer.seeds) < MAX_SEEDS
    elif isinstance(killer, Explore):
        assert killer.says
    else:
        assert killer.nodes


def test_the_catalogue_is_large_and_its_names_are_unique():
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE) >= 40
    assert sum(mutant.name.startswith("manifest-ignores-") for mutant in CATALOGUE) >= 22
    with pytest.raises(StaleMutant, match="no mutant is called 'nothing'"):
        find("nothing")


def test_a_mutant_lives_in_its_own_process_only():
    text = find("credit-unbounded").path.read_text()
    done = command("--only", "credit-unbounded", "--verbose")
    assert done.returncode == 0, done.stdout
    assert "credits-bound-bytes" in done.stdout and "in flight under a credit" in done.stdout
    assert find("credit-unbounded").path.read_text() == text


def test_the_pytest_plugin_plants_before_anything_is_imported():
    node = "tests/protocol/test_credits.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.mutants.planting", "-q", node],
        cwd=ROOT,
        env={**os.environ, "BATON_MUTANT": "credit-unbounded"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout and "test_a_chunk_larger_than_the_window" in done.stdout


def test_survivors_strangers_and_stale_lines_are_faults():
    """A killer is judged by what it is told to find, so here it is told something wrong."""
    script = """
import sys
from msgspec.structs import replace
from tests.mutants import catalogue, hunting
from tests.mutants.mutant import ByTests, Vopr
mutant = catalogue.find("account-keeps-blocks")
blind = ("tests/nodes/test_fleet.py::test_readiness_needs_fresh_heartbeats",)
elsewhere = ("tests/protocol/test_lease.py::test_a_lease_ends_exactly_at_its_time",)
changes = {
    "stranger": {"killer": Vopr(("reads-are-true",), seeds=(0,))},
    "survivor": {"killer": ByTests(blind)},
    "unseen": {"killer": ByTests(elsewhere)},
    "missing": {"killer": ByTests(("tests/protocol/test_credits.py::test_that_is_not_there",))},
    "stale": {"line": "no such line"},
}
catalogue.CATALOGUE = tuple(replace(mutant, name=name, **c) for name, c in changes.items())
from tests.mutants import run
for verdict in run.run(list(changes)):
    print(verdict.name, "|", verdict.fault)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    faults = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    assert faults["stranger"].startswith("unexpected killer nothing-held")
    assert faults["survivor"].startswith("survived tests/nodes/test_fleet.py")
    assert faults["unseen"] == "error: nothing imported baton.nodes.router_context"
    assert faults["missing"].startswith("error: ")
    assert faults["stale"].startswith("error: ") and "0 times" in faults["stale"]


@pytest.mark.slow
def test_every_planted_bug_is_noticed_by_its_killer_and_by_nobody_else():
    done = command()
    assert done.returncode == 0, done.stdout
    assert CONTROL in done.stdout
    assert f"{len(CATALOGUE)} of {len(CATALOGUE)} planted bugs" in done.stdout


@pytest.mark.parametrize("wrong", [("--jobs", "-1"), ("--jobs", "9999"), ("--timeout", "nan")])
def test_a_number_that_cannot_be_meant_is_refused_by_name(wrong):
    done = command(*wrong)
    assert done.returncode == 2
    assert f"{wrong[0]} is {wrong[1]}; use " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_one_line_and_leaves_nobody(number):
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants", "--jobs", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        running.stdout.readline()  # the first verdict: the rest is under way
        os.killpg(running.pid, number)
        said = running.stderr.read()
    assert running.returncode == 130, said
    assert said == "interrupted: not every planted bug was judged\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
