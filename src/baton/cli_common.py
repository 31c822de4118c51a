"""What several verbs need: output files that are checked before the run, and a fast event loop."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from baton.errors import ConfigError

Word = TypeVar("Word", bound=StrEnum)
LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None


def check_writable(path: Path | None, flag: str = "--json") -> None:
    """Refuse a file before the run and not after it: only opening it tells."""
    if path is None:
        return
    existed = os.path.exists(path)
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink(missing_ok=True)


def check_folder_writable(path: Path | None, flag: str = "--out-dir") -> None:
    """The same for a folder that may not be there yet: only making a file tells."""
    if path is None:
        return
    there = next(one for one in (path, *path.absolute().parents) if os.path.exists(one))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"{there} is no folder" if not there.is_dir() else str(error.strerror)
        raise ConfigError(f"{flag} {path} cannot be written: {what}") from error


def loop_factory() -> LoopFactory:
    """uvloop where it is installed: gateway and clients handle many small chunks."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def data_folder(given: Path | None) -> Path | None:
    """The folder of measured tables that was named, or BATON_DATA; formulas need none."""
    from baton.hardware.sources import check_folder

    name = os.environ.get("BATON_DATA", "")
    if given is None and not name:
        return None
    path, flag = (Path(name), "BATON_DATA") if given is None else (given, "--data")
    if not os.path.isdir(path):
        raise ConfigError(f"{flag} {path}: no such folder")
    check_folder(path, f"{flag} {path}")
    return path


def word(kind: type[Word], text: str, flag: str) -> Word:
    """The member of an enumeration that a flag names."""
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(one.value for one in kind)
        raise ConfigError(f"{flag} {text!r}: use one of {known}") from None


def seed_list(text: str, least: int = 1) -> tuple[int, ...]:
    """Of `--seeds 0,1,2`: different numbers, at least so many."""
    try:
        seeds = tuple(int(one) for one in text.split(","))
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: whole numbers, such as 0,1,2") from None
    if len(set(seeds)) != len(seeds) or len(seeds) < least or min(seeds) < 0:
        raise ConfigError(f"--seeds {text!r}: at least {least} different ones, 0 or more")
    return seeds


class _PipeConsole(Console):
    """A reader that has seen enough, such as `head`, is no failure."""

    def on_broken_pipe(self) -> None:
        """End quietly: the status of an error would tell of one."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(0)


def console_for(columns: int) -> Console:
    """The terminal, or as many columns as a verb's tables need when they go into a file."""
    console = _PipeConsole()
    return console if console.is_terminal else _PipeConsole(width=columns)
