"""Which process somebody is, and whether it lives, as far as this host can see."""

import os
from pathlib import Path

from baton.integrations.vllm.messages import Process

_STARTED_FIELD = 19
"""Of /proc/PID/stat behind the command: start time in ticks, by which uses of a pid differ."""


def this_process() -> Process:
    """The calling process."""
    return Process(place=_place(), pid=os.getpid(), started=_started(os.getpid()))


def is_dead(process: Process) -> bool:
    """Whether it is known to be over; False also where this host cannot see it."""
    return process.place == _place() and _started(process.pid) != process.started


def this_host() -> str:
    """Which running kernel: all of its processes read one monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _place() -> str:
    return f"{this_host()} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return -1
    return -1 if fields[0] in "ZX" else int(fields[_STARTED_FIELD])
