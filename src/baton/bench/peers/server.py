"""An OpenAI-compatible server as a process on given cores, from start to a first answer to end."""

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec

from baton.errors import BatonError

_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.25


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """One engine of the comparison and the command that serves it."""

    name: str
    runs: str
    """Version, precision and threads, for the table."""
    model: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    port: int

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"


class PeerServer:
    """A contender's running server."""

    def __init__(self, contender: Contender, process: Process, log: Path) -> None:
        self.contender = contender
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, contender: Contender, cores: Sequence[int]) -> "PeerServer":
        """Start it and return at its first answer. Raises BatonError with the log's end."""
        handle, name = tempfile.mkstemp(prefix="baton-peer-", suffix=".log")
        try:
            process = await asyncio.create_subprocess_exec(
                *contender.command,
                stdin=PIPE,  # kept open: some serve until it closes
                stdout=handle,
                stderr=STDOUT,
                env={**os.environ, **contender.environment},
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        except OSError as error:
            Path(name).unlink()
            raise BatonError(f"{contender.name}: cannot start: {error}") from error
        finally:
            os.close(handle)
        server = cls(contender, process, Path(name))
        try:
            await server._wait_ready()
        except BaseException:
            await server.stop()
            raise
        return server

    async def _wait_ready(self) -> None:
        body = {"model": self.contender.model, "prompt": "Hello", "max_tokens": 1}
        url = f"{self.contender.url}/v1/completions"
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        async with aiohttp.ClientSession() as session:
            while asyncio.get_running_loop().time() < deadline:
                if self._process.returncode is not None:
                    raise BatonError(
                        f"{self.contender.name} ended with {self._process.returncode} before it "
                        f"answered; its last words: {self._last_words()}"
                    )
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with session.post(url, json=body) as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(_POLL_S)
        raise BatonError(
            f"{self.contender.name}: no answer at {url} within {_START_TIMEOUT_S:.0f} s; its last "
            f"words: {self._last_words()}"
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "none"

    async def stop(self) -> None:
        """End the process and whatever it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for number in (signal.SIGINT, signal.SIGKILL):
            # The session's group: an engine's helpers may outlive its first process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
        self._log.unlink(missing_ok=True)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def version_in(python: str, distribution: str) -> str:
    """The version of a distribution in the environment of `python`; "" when it has none.

    Raises BatonError when `python` cannot be run at all.
    """
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    try:
        process = await asyncio.create_subprocess_exec(
            python, "-c", code, stdout=PIPE, stderr=DEVNULL
        )
    except OSError as error:
        raise BatonError(f"{python} cannot be run: {error.strerror}; name a Python") from error
    output, _ = await process.communicate()
    return output.decode().strip() if process.returncode == 0 else ""
