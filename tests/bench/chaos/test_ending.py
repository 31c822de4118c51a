"""A chaos run that is told to end leaves nothing; one that was killed is swept up after."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from baton.bench.chaos.folder import run_folder

BATON = [sys.executable, "-c", "from baton.cli import main; main()"]


def descendants(pid: int) -> set[int]:
    """Every process below this one, whatever its session."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    found, fresh = set(), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def folders(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"baton-chaos-{pid}-*"))


@pytest.mark.slow
def test_a_run_that_is_told_to_end_while_it_starts_leaves_nothing():
    with subprocess.Popen([*BATON, "chaos"], stdout=subprocess.PIPE, text=True) as running:
        deadline_s = time.monotonic() + 60
        while len(below := descendants(running.pid)) < 3 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        time.sleep(1)
        below |= descendants(running.pid)
        running.terminate()
        text = running.stdout.read()
        below |= descendants(running.pid)
    assert running.returncode == 128 + signal.SIGTERM and "interrupted, tearing down" in text
    assert len(below) >= 3
    assert not {pid for pid in below if Path(f"/proc/{pid}").exists()}
    assert folders(running.pid) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_leaves_nothing(number):
    segments = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [*BATON, "chaos", "--minutes", "0.9", "--only", "freeze-thaw", "--only", "drop-message"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        said = []
        for line in running.stdout:
            said.append(line)
            if "injecting" in line:
                break
        below = descendants(running.pid)
        assert len(below) >= 5 and folders(running.pid), said
        time.sleep(3)  # in the middle of a freeze
        running.send_signal(number)
        said.append(running.stdout.read())
    text = "".join(said)
    assert running.returncode == 128 + number, text
    assert "interrupted, tearing down" in text and "Traceback" not in text
    assert "until it was interrupted" in text and "equal" in text, "what was judged is reported"
    assert not {pid for pid in below if Path(f"/proc/{pid}").exists()}
    assert folders(running.pid) == []
    ours = {name for name in set(os.listdir("/dev/shm")) - segments if str(running.pid) in name}
    assert not ours


def test_the_folder_of_a_killed_run_is_swept_and_that_of_a_living_one_is_not():
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        dead = Path(tempfile.mkdtemp(prefix=f"baton-chaos-{ended.pid}-"))
    living = Path(tempfile.mkdtemp(prefix=f"baton-chaos-{os.getppid()}-"))
    try:
        with run_folder() as folder:
            assert folder.name.startswith(f"baton-chaos-{os.getpid()}-")
            assert living.exists() and not dead.exists()
        assert not folder.exists()
    finally:
        living.rmdir()
