"""The verbs vopr, explore and chaos: what they refuse, and how they end when they are told to."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from baton.cli import app
from baton.errors import ConfigError
from baton.sim.campaign import campaign, useful_jobs

BATON = [sys.executable, "-c", "from baton.cli import main; main()"]
CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("vopr --minutes 0", "--minutes is 0; use a positive number"),
        ("vopr --minutes nan", "--minutes is nan"),
        ("vopr --minutes inf", "--minutes is inf"),
        ("vopr --jobs 9999 --seeds 2", "--jobs is 9999; use 1 to 256"),
        ("vopr --jobs -1 --seeds 2", "--jobs is -1"),
        ("vopr --seed 7 --start 5", "leave --start out"),
        ("vopr --seed 7 --jobs 2 --seeds 3", "leave --seeds and --jobs out"),
        ("vopr --seeds 2 --json /nowhere/sums.json", "--json /nowhere/sums.json cannot be written"),
        ("vopr --seeds 2 --json /proc", "--json /proc cannot be written"),
        ("explore --minutes nan", "--minutes is nan"),
        ("explore --minutes inf", "--minutes is inf"),
        ("explore --self-check -1", "--self-check is -1"),
        ("explore --max-states 0", "--max-states is 0"),
        ("chaos --minutes nan", "--minutes is nan"),
        ("chaos --minutes inf", "--minutes is inf"),
        ("chaos --json /nowhere/result.json", "--json /nowhere/result.json cannot be written"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_before_anything_runs(line, says):
    done = CliRunner().invoke(app, line.split())
    assert isinstance(done.exception, ConfigError)
    assert says in str(done.exception) and done.output.strip() == ""


def test_a_json_file_that_can_be_written_is_written(tmp_path):
    done = CliRunner().invoke(app, ["vopr", "--seeds", "2", "--json", str(tmp_path / "sums.json")])
    assert done.exit_code == 0, done.output
    assert b'"num_seeds":2' in (tmp_path / "sums.json").read_bytes()


def test_no_more_processes_than_have_work_and_cores():
    assert useful_jobs(0, None) == CORES
    assert useful_jobs(256, None) == 2 * CORES
    assert useful_jobs(0, 20) == useful_jobs(256, 1) == 1
    assert campaign(0, 2, jobs=200).num_jobs == 1


def test_a_moment_is_enough_for_some_seeds():
    assert campaign(0, None, seconds=1e-9).num_seeds > 0


def test_the_probes_are_told_apart_from_the_requests():
    done = CliRunner().invoke(app, ["vopr", "--seed", "7"])
    (number,) = re.findall(r"^  (\d+) requests,", done.output, re.MULTILINE)
    assert f"{number} requests and then 2 probes ended: " in done.output


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running_vopr() -> subprocess.Popen:
    running = subprocess.Popen(
        [*BATON, "vopr", "--minutes", "5"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + 60
    while len(children(running.pid)) < CORES and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(0.5)
    return running


def assert_all_end(pids: list[int]) -> None:
    deadline_s = time.monotonic() + 30
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline_s, alive
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_vopr_that_is_told_to_end_sums_up_what_ran(number):
    with running_vopr() as running:
        below = children(running.pid)
        assert below
        os.killpg(running.pid, number) if number == signal.SIGINT else running.send_signal(number)
        output, _ = running.communicate(timeout=120)
    assert running.returncode == 128 + number
    assert "interrupted" in output and "seeds" in output and " run, 0 failing" in output
    assert_all_end(below)


def test_the_processes_of_a_killed_vopr_die_with_it():
    with running_vopr() as running:
        below = children(running.pid)
        assert below
        running.kill()
    assert_all_end(below)


def test_explore_that_is_interrupted_claims_nothing():
    with subprocess.Popen([*BATON, "explore"], stdout=subprocess.PIPE, text=True) as running:
        assert "push" in running.stdout.readline()
        time.sleep(1.0)
        running.send_signal(signal.SIGINT)
        output = running.stdout.read()
    assert running.returncode == 130
    assert "interrupted" in output and "NOT exhausted" in output
