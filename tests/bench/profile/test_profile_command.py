"""`baton profile` as a person runs it: refusals at once, and a whole run of the tiny model."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from baton.bench.profile.journal import Sample
from baton.policy.phase_cost import PrefillRows
from baton.profile_file import load_profile

BATON = (sys.executable, "-c", "from baton.cli import main; main()", "profile")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*BATON, *arguments), cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--out", "folder"), "is a folder"),
        (("--out", "file/p.json"), "--out file/p.json cannot be written"),
        (("--threads", "1000"), "worker.threads is 1000"),
        (("--threads", "0"), "worker.threads"),
        (("--tbt-ms", "0"), "--tbt-ms is 0.0"),
        (("--tbt-ms", "nan"), "--tbt-ms is nan"),
        (("--set", "model.device=cuda"), "model.device is 'cuda'"),
        (("--set", "worker.speed=1"), "speed"),
        (("--model", "no-such-model"), "no such model"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_measured(tmp_path, arguments, named):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    said = done.stderr + done.stdout
    assert named in said and "Traceback" not in said
    if said.startswith("baton: "):
        assert len(said.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*BATON, "--model", "tiny", "--quick", "--out", "p.json", *arguments),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def engine_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"baton.bench.profile.child" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.slow
def test_a_run_that_is_broken_off_twice_goes_on_and_ends(tmp_path):
    journal = tmp_path / "p.json.journal"
    broken = start(tmp_path)
    wait_for_lines(journal, 20, broken)
    (child,) = engine_children(broken.pid)
    os.kill(child, signal.SIGKILL)
    said, _ = broken.communicate(timeout=60)
    assert broken.returncode == 2 and "ended with exit -9" in said and "Traceback" not in said
    first = journal.read_bytes()
    assert first.count(b"\n") >= 20

    refused = start(tmp_path, "--seed", "2")
    said, _ = refused.communicate(timeout=120)
    assert refused.returncode == 2 and "seed: 1, not 2" in said
    assert journal.read_bytes() == first

    journal.write_bytes(first + b'{"type":"sample","rou')
    interrupted = start(tmp_path)
    wait_for_lines(journal, first.count(b"\n") + 30, interrupted)
    interrupted.send_signal(signal.SIGINT)
    said, _ = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130 and "run the same command again" in said
    assert "Traceback" not in said
    assert journal.read_bytes().startswith(first)
    assert not (tmp_path / "p.json").exists()

    num_lines = journal.read_bytes().count(b"\n")
    last = start(tmp_path, "--tbt-ms", "50")
    said, _ = last.communicate(timeout=300)
    assert last.returncode in (0, 1), said  # 1: this machine was too busy to be predicted
    assert f"going on after {num_lines - 1} measurements" in said
    assert "token budget" in said and "written to p.json" in said
    assert not journal.exists()
    judge_profile(tmp_path)


def judge_profile(folder: Path) -> None:
    profile = load_profile(folder / "p.json")
    assert profile.subject.identity.model == "tiny"
    assert set(profile.errors) == {"prefill", "decode", "mixed"}
    assert profile.transfer.bytes_per_us > 100
    assert profile.delays is not None and profile.delays.num_requests == 24
    assert profile.delays.control_us > 0 and profile.delays.gateway_in_us > 0
    assert profile.step_us([PrefillRows(num_rows=128)], []) > profile.step_us([], [16]) > 0
    lines = (folder / "p.json.points").read_bytes().splitlines()[1:]
    samples = [msgspec.json.decode(line, type=Sample) for line in lines if b'"sample"' in line]
    keys = [(s.round, s.shape, s.paired, s.beside) for s in samples]
    assert len(keys) == len(set(keys)), "nothing is measured twice"
    rounds = {s.round for s in samples}
    for number in rounds:
        assert sum(s.round == number for s in samples) == len(samples) / len(rounds)
    left = [path.name for path in Path("/dev/shm").glob("baton-*") if not _is_alive(path.name)]
    assert left == []


def _is_alive(name: str) -> bool:
    """Whether the process that owns a segment lives; a killed one leaves its segment behind."""
    pid = name.split("-")[1]
    return not pid.isdigit() or Path(f"/proc/{pid}").exists()
