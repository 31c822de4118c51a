"""Pairs of pipelines on two Ray nodes: all stages of a pair on one node, answers as colocated."""

import contextlib
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.bench.ray.nodes import parent_of
from baton.bench.ray.served import Served
from baton.runtime.dataplane.nixl import is_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'kvbaton[ray]'",
    ),
    pytest.mark.skipif(
        not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
    ),
]
HOST = "127.0.0.1"
START_S = 120.0
PROMPTS = ("What is the capital of France?", "Name three prime numbers.")
COMMON = [
    "--object-store-memory=80000000",
    "--disable-usage-stats",
    "--block",
    "--memory=4000000000",
]


class TwoNodes:
    """Two raylets on this host, with three CPUs and with two: one of the three is the gateway's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_raylet_start_wait_time_s": str(int(START_S)),
        }
        with socket.create_server((HOST, 0)) as free:
            self.address = f"{HOST}:{free.getsockname()[1]}"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Both, one after the other."""
        port = self.address.rpartition(":")[2]
        head = ["--head", f"--port={port}", "--include-dashboard=false", "--num-cpus=3"]
        for words in (head, [f"--address={self.address}", "--num-cpus=2"]):
            log = self._folder / f"ray-{len(self._running)}.log"
            command = ["ray", "start", f"--node-ip-address={HOST}", *words, *COMMON]
            with log.open("wb") as output:
                self._running.append(
                    subprocess.Popen(
                        command,
                        env=self.environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            deadline_s = time.monotonic() + START_S
            while "Ray runtime started" not in log.read_text(errors="replace"):
                assert self._running[-1].poll() is None, log.read_text()
                assert time.monotonic() < deadline_s, log.read_text()
                time.sleep(0.2)

    def node_of(self, pid: int) -> int:
        """Which node a process descends from."""
        roots = [process.pid for process in self._running]
        while pid > 1:
            if pid in roots:
                return roots.index(pid)
            pid = parent_of(pid)
        raise AssertionError("it is of no node")

    def close(self) -> None:
        """End both at once."""
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def stages_of(pid: int) -> list[int]:
    """The processes that a worker started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_every_stage_of_a_pair_stands_on_one_node_and_answers_are_those_of_one_worker(tmp_path):
    alone = Served(["--mixed", "1", "--model", "tiny"], tmp_path / "alone.log", dict(os.environ))
    try:
        expected = [alone.chat(prompt, 16) for prompt in PROMPTS]
    finally:
        alone.stop()
    nodes = TwoNodes(tmp_path)
    try:
        nodes.start()
        flags = ["--cluster", f"ray://{nodes.address}", "--model", "tiny", "--data-plane", "nixl"]
        flags += ["--prefill", "2", "--decode", "2"]
        for knob in ("placement='pair'", "prefill_pp=2", "decode_pp=2", "pin_cores=false"):
            flags += ["--set", f"cluster.{knob}"]
        flags += ["--set", "worker.kv_nbytes=33554432"]
        served = Served(flags, tmp_path / "pairs.log", nodes.environment)
        try:
            pids = {name: one["pid"] for name, one in served.workers().items()}
            group = {name: [pid, *stages_of(pid)] for name, pid in pids.items()}
            assert [len(group[name]) for name in sorted(group)] == [3, 3, 3, 3]
            where = {name: {nodes.node_of(pid) for pid in group[name]} for name in group}
            assert all(len(found) == 1 for found in where.values()), where
            assert where["prefill-0"] == where["decode-2"], where
            assert where["prefill-1"] == where["decode-3"], where
            assert where["prefill-0"] != where["prefill-1"], where
            assert [served.chat(prompt, 16) for prompt in PROMPTS] == expected
            assert served.leftovers() == []
        finally:
            assert served.stop() == 0
        left = [pid for pids in group.values() for pid in pids if Path(f"/proc/{pid}").exists()]
        assert left == []
    finally:
        nodes.close()
