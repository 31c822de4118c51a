"""Proof that a process has ended, by another one that runs under the same kernel."""

import os
import select
import signal
import time
from pathlib import Path

import msgspec

from baton.runtime.ray.orders import Finding, ProcessMark

_END_S = 5.0
_QUIET_S = 5.0
_POLL_S = 0.02
_PROC = Path("/proc")
_START_TICKS = 19
"""Of the words of /proc/PID/stat, the one that says when it started, after the name."""
_UNSENT = frozenset({"04", "09", "0B"})
"""FIN_WAIT1, LAST_ACK and CLOSING: the other side has not yet got everything."""


def mark_process(pid: int) -> ProcessMark:
    """The mark of a process of this host that is not reaped. Raises OSError when it is no more."""
    boot_id, pid_namespace = _kernel()
    return ProcessMark(
        boot_id=boot_id, pid_namespace=pid_namespace, pid=pid, start_ticks=_start_ticks(pid)
    )


def testify(mark_bytes: bytes) -> str:
    """The `Finding` of this host on a process, which is ended where it still runs.

    Blocks for some seconds at most. Bytes that the dead left to the kernel are waited for: its
    sockets send on after it.
    """
    mark = msgspec.msgpack.decode(mark_bytes, type=ProcessMark)
    if (mark.boot_id, mark.pid_namespace) != _kernel():
        return Finding.ELSEWHERE
    if not _end(mark):
        return Finding.RUNS
    return Finding.ENDED if _are_sent(_unsent()) else Finding.SENDING


def _end(mark: ProcessMark) -> bool:
    """Whether it is no more; the handle is of whatever has its number, and stays with that."""
    try:
        handle = os.pidfd_open(mark.pid)
    except ProcessLookupError:
        return True
    try:
        if _start_ticks(mark.pid) != mark.start_ticks:
            return True  # its number is another one's by now
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return bool(ended.poll(1e3 * _END_S))
    except (FileNotFoundError, ProcessLookupError):
        return True  # it ended meanwhile
    finally:
        os.close(handle)


def _are_sent(sockets: frozenset[tuple[str, str]]) -> bool:
    """Whether none of these is left that the kernel still sends for."""
    deadline_s = time.monotonic() + _QUIET_S
    while sockets:
        sockets &= _unsent()
        if sockets and time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _unsent() -> frozenset[tuple[str, str]]:
    """Connections without an owner that still have something to send, by their two ends."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except FileNotFoundError:  # without IPv6
            continue
        for words in map(str.split, lines):
            if words[3] in _UNSENT and words[9] == "0":
                found.add((words[1], words[2]))
    return frozenset(found)


def _kernel() -> tuple[str, str]:
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return boot_id, str((_PROC / "self/ns/pid").readlink())


def _start_ticks(pid: int) -> int:
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TICKS])
