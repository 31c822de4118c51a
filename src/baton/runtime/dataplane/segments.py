"""Names of shared-memory segments, and the removal of those whose creator is dead.

A name is `baton-<pid>-<start>-<namespace>-<hint>-<random>`. The start time tells a reused pid from
the creator; the pid namespace keeps a container from judging pids that it cannot see.
"""

import os
import re
import secrets
from pathlib import Path

SHM_DIR = Path("/dev/shm")
_NAME = re.compile(
    r"baton-(?P<pid>\d+)-(?P<start>\d+)-(?P<namespace>\d+)-[A-Za-z0-9_.]{0,32}-[0-9a-f]{32}"
)
_DEAD_STATES = frozenset("ZX")


def new_name(hint: str) -> str:
    """Return a fresh segment name of this process; `hint` is for the human reader only."""
    pid = os.getpid()
    start = _start_time(pid)
    assert start is not None, "this process is alive"
    readable = re.sub(r"[^A-Za-z0-9_.]", "_", hint)[:32]
    return f"baton-{pid}-{start}-{_pid_namespace()}-{readable}-{secrets.token_hex(16)}"


def is_segment_name(name: str) -> bool:
    """True when `name` has the form that `new_name` makes, so it cannot leave `SHM_DIR`."""
    return _NAME.fullmatch(name) is not None


def sweep_orphans() -> list[str]:
    """Unlink every segment of this user whose creating process is dead; return their names.

    Segments of live processes, of other users and of other pid namespaces are left alone.
    """
    swept = []
    for path in SHM_DIR.glob("baton-*"):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match["namespace"]) != _pid_namespace():
            continue
        if _start_time(int(match["pid"])) == int(match["start"]):
            continue
        try:
            if path.stat().st_uid == os.geteuid():
                path.unlink()
                swept.append(path.name)
        except FileNotFoundError:
            continue  # its owner, or another sweeper, was quicker
    return swept


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`, or None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets: count the fields after its last bracket.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _DEAD_STATES else int(fields[19])


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
