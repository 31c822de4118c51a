"""Workers as processes of this host, each in a session of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from baton.config import BatonConfig
from baton.runtime.cores import thread_environment, worker_cores
from baton.runtime.curve import CurveKeys, mint_keys
from baton.runtime.dataplane import sweep_orphans
from baton.runtime.lines import LINE_NBYTES_MAX, read_lines
from baton.runtime.spec import WorkerSpec


class LocalLife:
    """A child of this process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def lines(self) -> AsyncIterator[bytes]:
        """See `Life.lines`."""
        assert self._process.stdout is not None
        async for line in read_lines(self._process.stdout):
            yield line

    async def wait(self) -> int:
        """See `Life.wait`."""
        return await self._process.wait()

    async def prove_end(self) -> bool:
        """See `Life.prove_end`: this host reaps it."""
        await self._process.wait()
        return True

    def stop(self) -> None:
        """See `Life.stop`."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """See `Life.kill`."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)


class LocalSite:
    """This host. The key pair is minted here and reaches the child by its standard input."""

    def __init__(self, config: BatonConfig, cores: tuple[int, ...], model_path: Path) -> None:
        self._threads = config.worker.threads
        self._keys: CurveKeys | None = mint_keys() if config.cluster.control == "tcp" else None
        self.host = config.cluster.control_host
        self.cores = cores
        self.model_path = model_path
        self.public_key = self._keys.public if self._keys else b""

    async def start(self, spec: WorkerSpec) -> LocalLife:
        """See `Site.start`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "baton.runtime.worker_main",
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_NBYTES_MAX,
            start_new_session=True,
            env={**os.environ, **thread_environment(self._threads)},
        )
        assert process.stdin is not None
        spec = replace(spec, control_keys=self._keys)
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        return LocalLife(process)

    def leave(self) -> None:
        """See `Site.leave`: nothing is held."""


class LocalLauncher:
    """Starts workers on this host."""

    def __init__(self, config: BatonConfig, model_path: Path) -> None:
        self._config = config
        self._model_path = model_path
        self._cores = worker_cores(config)

    async def take_site(self, ordinal: int) -> LocalSite:
        """See `Launcher.take_site`."""
        return LocalSite(self._config, self._cores[ordinal], self._model_path)

    def sweep(self) -> None:
        """See `Launcher.sweep`."""
        sweep_orphans()
