"""The chaos run's end of a host process: start it, give it orders, end it."""

import asyncio
import contextlib
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from baton.bench.chaos.orders import HostState, Order, Verb
from baton.bench.chaos.plan import HostPlan
from baton.errors import BatonError

_LINE_NBYTES = 1 << 22
_ANSWER_S = 30.0
_END_S = 30.0
_TAIL_LINES = 20
_EXIT = re.compile(r"^(\S+): epoch \d+ ended with exit (-?\d+);", re.MULTILINE)


class HostProcess:
    """A running host. Every order is answered with its state."""

    def __init__(self, process: Process, log: Path, first: HostState) -> None:
        self._process = process
        self._log = log
        self._asking = asyncio.Lock()
        self.address = ("127.0.0.1", first.port)
        self.pid = process.pid

    async def order(self, verb: Verb, worker_id: str = "") -> HostState:
        """Give an order and return the state after it. Raises BatonError when the host is gone."""
        assert self._process.stdin is not None
        async with self._asking:
            try:
                order = Order(verb=verb, worker_id=worker_id)
                self._process.stdin.write(msgspec.json.encode(order) + b"\n")
                return await _answer(self._process, _ANSWER_S)
            except (OSError, TimeoutError, BatonError) as error:
                raise BatonError(f"the host does not answer: {error}\n{self.tail()}") from error

    async def state(self) -> HostState:
        """Ask for the state only."""
        return await self.order("state")

    def tail(self) -> str:
        """The last lines that the host and its workers said."""
        return "\n".join(self._read().splitlines()[-_TAIL_LINES:])

    def exits(self) -> list[tuple[str, int]]:
        """Every life of a worker that ended, and its exit code."""
        return [(name, int(code)) for name, code in _EXIT.findall(self._read())]

    def _read(self) -> str:
        return self._log.read_text(errors="replace")

    def tracebacks(self) -> list[str]:
        """The last line of every exception that nobody handled, in any process."""
        found: list[str] = []
        inside = False
        for line in self._read().splitlines():
            if line.startswith("Traceback "):
                inside = True
            elif inside and line and not line.startswith((" ", "\t")):
                found.append(line[:200])
                inside = False
        return found


async def _answer(process: Process, timeout_s: float) -> HostState:
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        line = await process.stdout.readline()
    if not line:
        raise BatonError("it ended")
    state = msgspec.json.decode(line, type=HostState)
    if state.error:
        raise BatonError(state.error)
    return state


@asynccontextmanager
async def running_host(plan: HostPlan, log: Path) -> AsyncIterator[HostProcess]:
    """Start a host and wait until it serves; on leaving it is over, with all its workers."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "baton.bench.chaos.host",
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            start_new_session=True,
            limit=_LINE_NBYTES,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(plan) + b"\n")
        first = await _answer(process, plan.config.cluster.start_timeout_s + _ANSWER_S)
        yield HostProcess(process, log, first)
    finally:
        ending = asyncio.create_task(_end(process))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # while it ends; whoever cancels may not leave it behind
            await ending
            raise


async def _end(process: Process) -> None:
    """Let it tear its deployment down, for it has lost its standard input; kill it if it hangs."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
