"""A worker process on the node of its keeper."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

from baton.runtime.cores import thread_environment
from baton.runtime.dataplane import sweep_orphans
from baton.runtime.lines import LINE_NBYTES_MAX
from baton.runtime.ray.orders import News, ProcessMark
from baton.runtime.ray.witness import mark_process


class Child:
    """Starts one worker and reads its reports; call it from any thread.

    Everything of the process is done by one thread that lives as long as it: the kernel ends a
    worker with the *thread* that started it, and this is how it ends with its keeper.
    """

    def __init__(self, spec_line: bytes, threads: int) -> None:
        self._spec_line = spec_line
        self._environment = {**os.environ, **thread_environment(threads)}
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        self._error: OSError | None = None
        self.mark: ProcessMark | None = None
        """By which its end can be proven when this process is no more."""
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="baton-worker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def news(self, timeout_s: float) -> News:
        """Wait until it reports or ends, at most for so long."""
        lines: list[bytes] = []
        deadline_s = time.monotonic() + timeout_s
        while self._code is None:
            left_s = 0.0 if lines else max(0.0, deadline_s - time.monotonic())
            try:
                line = self._lines.get(timeout=left_s) if left_s else self._lines.get_nowait()
            except queue.Empty:
                break
            if line is None:
                self._thread.join()
                self._code = self._process.returncode if self._process else -1
                break
            lines.append(line)
        return News(lines=lines, code=self._code)

    def stop(self) -> None:
        """Close its standard input: it ends by itself."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # one that has ended is left alone

    def _main(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "baton.runtime.worker_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=self._environment,
            )
            self.mark = mark_process(self._process.pid)
        except OSError as error:
            self._error = error
            self._started.set()
            return
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(OSError):  # it ended at once
            stdin.write(self._spec_line + b"\n")
            stdin.flush()
        self._started.set()
        while line := stdout.readline(LINE_NBYTES_MAX):
            self._lines.put(line)
        self._process.wait()
        with contextlib.suppress(OSError):
            sweep_orphans()
        self._lines.put(None)
