"""The parent's end of an engine child: one order, one answer; its end is an error with a name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from baton.bench.profile.orders import Described, Order, Start, Timed
from baton.bench.profile.shapes import Room, Shape
from baton.config import BatonConfig
from baton.errors import BatonError
from baton.policy.service_profile import StepGrid, Subject
from baton.runtime.cores import thread_environment

_COMMAND = (sys.executable, "-m", "baton.bench.profile.child")
_ENDS_WITHIN_S = 10.0
Answer = TypeVar("Answer", Described, Timed)


class EngineChild:
    """An engine that another process runs on `cores`; use it as a context."""

    def __init__(self, config: BatonConfig, model_path: Path, cores: tuple[int, ...]) -> None:
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **thread_environment(config.worker.threads)},
        )
        self._spinning = False
        start = Start(
            model_path=str(model_path),
            cores=cores,
            config=config,
            parent_pid=os.getpid(),
        )
        self._write(start)
        described = self._read(Described)
        if described.error or described.subject is None or described.room is None:
            raise BatonError(described.error or "the engine process described nothing")
        self.subject: Subject = described.subject
        self.room: Room = described.room
        self.grid: StepGrid = described.grid

    def __enter__(self) -> "EngineChild":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def time(self, shape: Shape) -> Timed:
        """One step of this shape."""
        self._write(Order(shape=shape))
        return self._read(Timed)

    def spin(self, shape: Shape) -> None:
        """Run this shape again and again until `rest`."""
        self._write(Order(shape=shape, endless=True))
        self._spinning = True

    def rest(self) -> None:
        """End what spins: a line that orders the shape once is read between two steps."""
        if not self._spinning:
            return
        self._spinning = False
        self._write(Order(shape=Shape(visible_lengths=(2,))))
        self._read(Timed)
        self._read(Timed)

    def close(self) -> None:
        """End the process; its shared memory goes with it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_ENDS_WITHIN_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _write(self, message: msgspec.Struct) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def _read(self, kind: type[Answer]) -> Answer:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(b"{"):  # libraries may print too
                return msgspec.json.decode(line, type=kind)
        raise self._ended()

    def _ended(self) -> BatonError:
        code = self._process.wait()
        return BatonError(f"the profiled engine's process ended with exit {code}")
