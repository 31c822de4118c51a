"""Result files that are whole or not there: written beside their place, then put there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baton.errors import ConfigError


@contextmanager
def output_file(path: Path, flag: str) -> Iterator[Path]:
    """Where to write what belongs at `path`, which keeps what it held if that fails.

    Devices, pipes and files in folders that take no new ones are written as they are. Raises
    ConfigError, naming the flag, for a full disk or a place that may no longer be written.
    """
    if path.exists() and not _can_replace(path):
        with _refused(path, flag):
            yield path
        return
    with _refused(path, flag):
        target = path.resolve()
        number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        os.close(number)
        beside = Path(name)
        try:
            yield beside
            beside.chmod(0o666 & ~_umask())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def write_file(path: Path, content: bytes, flag: str = "--json") -> None:
    """All of it, or ConfigError and nothing."""
    with output_file(path, flag) as place:
        place.write_bytes(content)


@contextmanager
def _refused(path: Path, flag: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be written: {error.strerror}") from error


def _can_replace(path: Path) -> bool:
    """Not what /dev/stdout leads to: others are writing it."""
    is_device = path.absolute().parts[:2] == ("/", "dev")
    return path.is_file() and not is_device and os.access(path.resolve().parent, os.W_OK)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
