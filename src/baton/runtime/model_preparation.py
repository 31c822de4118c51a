"""A model on this host, resolved in a process of its own."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import msgspec

from baton.errors import BatonError, ConfigError
from baton.runtime.lines import LINE_NBYTES_MAX, read_lines

Progress = Callable[[str, float], None]


class _PrepareLine(msgspec.Struct, frozen=True):
    stage: str = ""
    fraction: float = 0.0
    path: str = ""
    error: str = ""


async def prepare_model(name: str, progress: Progress) -> Path:
    """Resolve a model in a process of its own, so that this one never loads torch."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "baton.engine.prepare", name, stdout=PIPE, limit=LINE_NBYTES_MAX
    )
    assert process.stdout is not None
    last = _PrepareLine()
    try:
        async for line in read_lines(process.stdout):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                last = msgspec.json.decode(line, type=_PrepareLine)
                if last.stage:
                    progress(last.stage, last.fraction)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if last.error:
        raise ConfigError(last.error)
    if not last.path:
        raise BatonError(f"preparing model {name!r} ended with exit {code} and no result")
    return Path(last.path)
