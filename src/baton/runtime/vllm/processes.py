"""Starts vLLM servers, and starts the dead again; each life gets a log of its own."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path

from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.runtime.notice import notice
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.command import (
    Ports,
    address_of,
    most_ranks,
    ports_of,
    server_command,
    server_cores,
    server_environment,
)
from baton.runtime.vllm.servers import Server

_STOP_S = 15.0
_BACKOFF_S = (0.5, 2.0, 5.0)
_NUM_VAIN_STARTS = 3
"""Ends in a row of a server that never answered: the next one would end too."""
_PR_SET_PDEATHSIG = 1
_TAIL_NBYTES = 65536
_POLL_S = 1.0


class ServerProcess:
    """One slot: its current process, its ports and its log."""

    def __init__(
        self, server: Server, ordinal: int, cores: tuple[int, ...], ports: Ports, folder: Path
    ) -> None:
        self.server = server
        self.ordinal = ordinal
        self.cores = cores
        self.ports = ports
        self.process: Process | None = None
        self.lives = 0
        self._folder = folder
        self.vain_starts = 0

    @property
    def log(self) -> Path:
        """What the current life says."""
        return self._folder / f"{self.server.server_id}.{self.lives}.log"

    @property
    def next_log(self) -> Path:
        """What the next life will say."""
        return self._folder / f"{self.server.server_id}.{self.lives + 1}.log"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the server with all its children."""
        if self.process is not None and self.process.returncode is None:
            self.end_group(number)

    def end_group(self, number: int = signal.SIGKILL) -> None:
        """Signal what is left of the life: engine and workers outlive an API server that was
        killed, and keep its ports and its memory."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


class ServerProcesses:
    """Owns the processes of a deployment. `failure` is set when they cannot serve."""

    def __init__(self, config: BatonConfig, backend: VllmBackend, model: str, folder: Path) -> None:
        self._config = config
        self._model = model
        self._folder = folder
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.slots: list[ServerProcess] = []
        for ordinal, (role, cores) in enumerate(
            zip(config.cluster.roles, server_cores(config), strict=True)
        ):
            ports = ports_of(config.vllm.first_port, ordinal, most_ranks(config.vllm))
            server = backend.servers.add(address_of(config, role, ports))
            self.slots.append(ServerProcess(server, ordinal, cores, ports, folder))

    def start(self) -> None:
        """Start every server; they come up in parallel."""
        for slot in self.slots:
            self._tasks.append(asyncio.create_task(self._keep(slot)))

    async def stop(self) -> None:
        """End every process: SIGTERM first, then SIGKILL after a bound."""
        self._stopping = True
        for slot in self.slots:
            slot.kill(signal.SIGTERM)
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
        for slot in self.slots:
            slot.kill()
        if late:
            await asyncio.wait(late, timeout=_STOP_S)

    async def _keep(self, slot: ServerProcess) -> None:
        while not self._stopping:
            slot.lives += 1
            code = await self._run(slot)
            if self._stopping:
                return
            served = slot.server.epoch > 0
            slot.server.end(f"its process ended with exit {code}")
            slot.vain_starts += not served
            if slot.vain_starts == _NUM_VAIN_STARTS:
                self._fail(
                    f"{slot.server.server_id} ended {slot.vain_starts} times before it served; "
                    f"exit {code}: {last_error(slot.log)} (all of it: {slot.log})"
                )
                return
            if slot.lives > self._config.cluster.max_restarts:
                self._fail(f"{slot.server.server_id} died {slot.lives} times; last exit {code}")
                return
            notice(slot.server.server_id, f"process ended with exit {code}; it starts again")
            await asyncio.sleep(_BACKOFF_S[min(slot.lives, len(_BACKOFF_S)) - 1])

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    async def _run(self, slot: ServerProcess) -> int:
        command = server_command(self._config, self._model, slot.server.role, slot.ports)
        num_ranks = self._config.vllm.tp_of(slot.server.role)
        own = server_environment(self._config, slot.ordinal, slot.cores, slot.ports, num_ranks)
        with slot.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                env={**os.environ, **own},
            )
        slot.process = process
        watching = asyncio.create_task(self._watch_silence(slot))
        try:
            return await process.wait()
        finally:
            watching.cancel()
            slot.end_group()

    async def _watch_silence(self, slot: ServerProcess) -> None:
        """End a server that has served and does not answer any more: its restart is its cure."""
        server, began = slot.server, slot.server.epoch
        silent_since = 0.0
        limit_s = self._config.vllm.silence_ms / 1000
        while True:
            await asyncio.sleep(_POLL_S)
            if server.is_up or server.epoch == began:
                silent_since = 0.0
                continue
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since >= limit_s:
                notice(server.server_id, "its process lives but does not answer; it is ended")
                slot.kill()
                return


def _end_with_parent() -> None:
    """In the child before it runs: the kernel ends it when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line."""
    with contextlib.suppress(OSError):
        data = log.read_bytes()[-_TAIL_NBYTES:].decode("utf-8", "replace")
        lines = [line.strip() for line in data.splitlines() if line.strip()]
        errors = [line for line in lines if "rror:" in line or "rror " in line]
        return (errors or lines or ["it said nothing"])[-1][-400:]
    return "its log cannot be read"


async def check_python(python: str) -> None:
    """Raise ConfigError where this Python has no vLLM."""
    program = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        process = await asyncio.create_subprocess_exec(
            python or sys.executable, "-c", program, stdin=asyncio.subprocess.DEVNULL
        )
        code = await process.wait()
    except OSError as error:
        raise ConfigError(f"vllm.python {python!r} cannot be run: {error.strerror}") from error
    if code:
        raise ConfigError(
            f"vllm.python {python or sys.executable!r} has no vLLM; name the Python of the "
            "environment that has it, or attach to servers with --prefill-url and --decode-url"
        )
