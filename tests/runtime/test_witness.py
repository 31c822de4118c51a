"""What proves the end of a process: it is looked for by more than its number, and is ended."""

import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from baton.runtime.ray import witness
from baton.runtime.ray.orders import Finding

FLOOD = """
import socket, sys
end = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
end.setblocking(False)
try:
    while True:
        end.send(bytes(1 << 16))
except BlockingIOError:
    print("full", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def finding(mark):
    return Finding(witness.testify(msgspec.msgpack.encode(mark)))


def test_a_process_that_has_gone_is_proven_dead(sleeper):
    mark = witness.mark_process(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert finding(mark) is Finding.ENDED


def test_one_that_still_runs_is_ended_first(sleeper):
    assert finding(witness.mark_process(sleeper.pid)) is Finding.ENDED
    assert sleeper.wait(5) == -signal.SIGKILL


def test_another_one_with_its_number_is_left_alone(sleeper):
    mark = witness.mark_process(sleeper.pid)
    earlier = msgspec.structs.replace(mark, start_ticks=mark.start_ticks - 1)
    assert finding(earlier) is Finding.ENDED
    assert sleeper.poll() is None


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace"])
def test_a_kernel_or_a_namespace_of_other_pids_knows_nothing(sleeper, field):
    mark = msgspec.structs.replace(witness.mark_process(sleeper.pid), **{field: "another"})
    sleeper.kill()
    sleeper.wait()
    assert finding(mark) is Finding.ELSEWHERE


def test_bytes_that_a_dead_process_left_to_the_kernel_are_waited_for(monkeypatch):
    monkeypatch.setattr(witness, "_QUIET_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", FLOOD, str(server.getsockname()[1])]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        peer, _ = server.accept()
        with peer, process:
            assert process.stdout is not None and process.stdout.readline() == b"full\n"
            mark = witness.mark_process(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            assert finding(mark) is Finding.SENDING
            while peer.recv(1 << 20):
                pass
            monkeypatch.setattr(witness, "_QUIET_S", 5.0)
            assert finding(mark) is Finding.ENDED
