"""Where trace effects go: a JSONL file for each process, if one was asked for."""

import errno
import os
import socket
import time
from io import FileIO
from pathlib import Path

import msgspec

from baton.core.effects import Trace
from baton.errors import ConfigError
from baton.runtime.clock import now_us
from baton.runtime.notice import notice
from baton.telemetry.trace.event import TraceEvent

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Reasons not to open a file that are no mistake of whoever named it."""


def make_trace_dir(path: Path) -> None:
    """The folder of `--trace-dir`, made if need be. Raises ConfigError where there can be none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is no folder" if path.exists() else error.strerror
        raise ConfigError(
            f"--trace-dir {path}: {reason}; name a folder, or where one can be made and written"
        ) from error


def _host() -> str:
    """What tells one running system from another: monotonic clocks begin at its boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


class TraceLog:
    """Writes the events of this process; without a path it costs nothing.

    Serving goes on without traces: an event that cannot be written, as on a full disk, is dropped
    and counted.
    """

    def __init__(self, place: str, path: str = "") -> None:
        """Raises ConfigError when the path cannot be written, except where that may pass."""
        self.num_dropped = 0
        self._place = place
        self._path = path
        self._torn = False
        self._is_started = False
        self._file = self._open()
        self._encoder = msgspec.json.Encoder()

    def _open(self) -> FileIO | None:
        if not self._path:
            return None
        try:
            # Unbuffered: a killed process loses nothing that it had recorded.
            return Path(self._path).open("ab", buffering=0)
        except OSError as error:
            text = f"trace file {self._path}: {error.strerror}"
            if error.errno not in _PASSING:
                raise ConfigError(f"{text}; choose a --trace-dir that can be written") from error
            notice(self._place, f"{text}; no events are recorded")
            return None

    def record(self, trace: Trace, at_us: int) -> None:
        """Take one trace effect."""
        if not self._path:
            return
        if self._file is None:
            self.num_dropped += 1
            return
        event = TraceEvent(
            at_us=at_us,
            place=self._place,
            name=trace.name,
            request_id=trace.request_id,
            generation=trace.generation,
            data=trace.data,
        )
        self._write(self._file, self._encoder.encode(event) + b"\n")

    def _write(self, file: FileIO, line: bytes) -> None:
        # A line that was cut short is ended first, so that only itself is lost.
        data = b"\n" + line if self._torn else line
        try:
            written = file.write(data)
        except OSError as error:
            written = 0
            reason = error.strerror
        else:
            reason = "a short write"
        if written == len(data):
            self._torn = False
            return
        self._torn = self._torn or written > 0
        if not self.num_dropped:
            text = f"trace file {self._path}: {reason}; events are dropped and counted"
            notice(self._place, text)
        self.num_dropped += 1

    def started(self) -> None:
        """Say whose clock this is, and what time it was on it: once, before anything else."""
        self._is_started = True
        data: dict[str, int | float | str] = {
            "unix_us": time.time_ns() // 1000,
            "host": _host(),
            "pid": os.getpid(),
        }
        self.record(Trace(name="process_started", data=data), now_us())

    def close(self) -> None:
        """Say that nothing follows, and close the file."""
        if self._is_started:
            data: dict[str, int | float | str] = {"num_dropped": self.num_dropped}
            self.record(Trace(name="process_stopped", data=data), now_us())
        if self._file is not None:
            self._file.close()
