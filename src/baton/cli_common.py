"""What several verbs need: output files that are checked before the run, and a fast event loop."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from baton.errors import ConfigError

LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None


def check_writable(path: Path | None, flag: str = "--json") -> None:
    """Refuse a file before the run and not after it: only opening it tells."""
    if path is None:
        return
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink(missing_ok=True)


def loop_factory() -> LoopFactory:
    """uvloop where it is installed: gateway and clients handle many small chunks."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def data_folder(given: Path | None) -> Path | None:
    """The folder of measured tables that was named, or BATON_DATA; formulas need none."""
    if given is None:
        name = os.environ.get("BATON_DATA", "")
        return Path(name) if name else None
    if not given.is_dir():
        raise ConfigError(f"--data {given}: no such folder")
    return given
