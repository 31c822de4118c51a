"""Ray nodes in network namespaces: a head beside this process, another with its own pids."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from baton.bench.network.namespaces import Namespace
from baton.errors import BatonError

PORT = 6399
_START_S = 180.0
_STOP_S = 20.0
_TERM_S = 3.0
"""Ray would drain its node for half a minute; nothing is left on it that needs that."""
_STARTED = "Ray runtime started"
_COMMON = ("--object-store-memory=80000000", "--disable-usage-stats", "--block")
_HEAD_CPUS, _OTHER_CPUS = 3, 1
"""Of the head gateway and router take one, so a group of two workers fits there only."""
_OTHER = "mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp/ray && exec "


class Nodes:
    """Everything that was started, so that everything is ended."""

    def __init__(self, head: Namespace, other: Namespace, folder: Path) -> None:
        self.head, self.other = head, other
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_raylet_start_wait_time_s": str(int(_START_S)),
        }
        """Of every process of the cluster: without the token nobody is let in."""

    def start_head(self) -> None:
        """The first node, in the namespace of this process."""
        words = ["ray", "start", "--head", f"--node-ip-address={self.head.address}"]
        words += [f"--port={PORT}", "--include-dashboard=false", f"--num-cpus={_HEAD_CPUS}"]
        self._start("head", [*words, *_COMMON])

    def start_other(self) -> None:
        """A node with its own network, pids, shared memory and name, as on another host."""
        Path("/tmp/ray").mkdir(exist_ok=True)
        ray = f"ray start --address={self.head.address}:{PORT} --node-ip-address="
        script = f"hostname node-b && {_OTHER}{ray}{self.other.address} "
        script += f"--num-cpus={_OTHER_CPUS} {' '.join(_COMMON)}"
        enter = ["ip", "netns", "exec", self.other.name, "unshare", "--pid", "--fork"]
        enter += ["--kill-child", "--mount-proc", "--ipc", "--uts", "sh", "-c", script]
        self._start("other", enter)

    def kill_other(self) -> None:
        """The second node is gone at once, as without power: all its processes are killed."""
        process = self._running.pop("other", None)
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)  # all pids of its namespace go with the first
            process.wait(_STOP_S)

    def owns(self, pid: int) -> bool:
        """Whether a process descends from the head."""
        head = self._running["head"].pid
        while pid > 1 and pid != head:
            try:
                pid = parent_of(pid)
            except OSError:
                return False
        return pid == head

    def close(self) -> None:
        """End both. The second one's first process takes no other signal than this."""
        self.kill_other()
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_TERM_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self, name: str, command: list[str]) -> None:
        log = self._folder / f"ray-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running[name] = process
        deadline_s = time.monotonic() + _START_S
        while _STARTED not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline_s:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise BatonError(f"the Ray node {name!r} did not start: {''.join(last)}; see {log}")
            time.sleep(0.2)


def parent_of(pid: int) -> int:
    """The process that started it. Raises OSError when it is no more."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def cable_nbytes() -> int:
    """What this side has sent over the cable, from within its namespace."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (words,) = [line.partition(":")[2].split() for line in lines if line.strip().startswith("veth")]
    return int(words[8])
