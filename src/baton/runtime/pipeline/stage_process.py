"""The worker's hold on one of its stages."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from baton.errors import EngineLost
from baton.runtime.pipeline.orders import Order, Report, read_frame, write_frame

_END_TIMEOUT_S = 5.0


class StageProcess:
    """A child process that computes some layers. One thread talks to it at a time."""

    def __init__(self, stage: int, inherited: Sequence[int]) -> None:
        self.stage = stage
        self._process = subprocess.Popen(
            [sys.executable, "-m", "baton.runtime.pipeline.stage_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=tuple(inherited),
        )
        self.pid = self._process.pid
        self.exit_fd = os.pidfd_open(self.pid)
        """Readable once the process has ended."""

    def send(self, order: Order) -> None:
        """Give an order. Raises EngineLost when the process has ended."""
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin, order)  # type: ignore[arg-type]
        except OSError as error:
            raise self.lost() from error

    def receive(self) -> Report:
        """Wait for the next report. Raises EngineLost when the process has ended."""
        assert self._process.stdout is not None
        data = read_frame(self._process.stdout)  # type: ignore[arg-type]
        if not data:
            raise self.lost()
        return msgspec.msgpack.decode(data, type=Report)

    def lost(self) -> EngineLost:
        """What to raise or to say when the process is no more."""
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return EngineLost(f"pipeline stage {self.stage} (pid {self.pid}) answers no more")
        end = f"exit {code}" if code >= 0 else f"signal {-code}"
        return EngineLost(f"pipeline stage {self.stage} (pid {self.pid}) ended with {end}")

    def close(self) -> None:
        """End the process. By force: nothing in it is worth the time of an orderly end."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not yet read stays unread
                    stream.close()
        self._process.wait()
        os.close(self.exit_fd)
