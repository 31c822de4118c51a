"""A process that times engine steps on request: one case in, one median (ms) out, as lines."""

import os
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence

import msgspec

from baton.errors import BatonError

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A decode step of `batch` sequences at `context`, or (batch 0) a prefill of `context`."""

    batch: int
    context: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"decode {self.batch}" if self.batch else "prefill"


class StepProcess:
    """An engine in a process of its own; ask it for one case at a time."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        first_line: bytes,
        environment: Mapping[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> "StepProcess":
        """Start `command`, send `first_line`, and wait until it says "ready"."""
        process = await create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL if quiet else None,
            env={**os.environ, **ONE_THREAD, **(environment or {})},
        )
        steps = cls(process, name)
        assert process.stdin is not None
        process.stdin.write(first_line + b"\n")
        while await steps._read() != b"ready":
            pass  # libraries may print before
        return steps

    async def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise BatonError(f"the {self._name} process ended with {await self._process.wait()}")
        return line.strip()

    async def ask(self, case: Case) -> float:
        """The median duration of this case, in milliseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(case) + b"\n")
        while True:
            line = await self._read()
            if line.startswith(b"ms "):
                return float(line[3:])

    async def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
