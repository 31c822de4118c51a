"""A trace file as numbered lines of text, plain or gzip; every failure names file and line."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from baton.errors import ConfigError

GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_NBYTES = 64 << 20
"""A longer line of a line-oriented format is not text; the bound keeps it out of memory."""


class Line(str):
    """One line without its end; `number` counts from 1."""

    __slots__ = ("number",)
    number: int


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed if they are gzip, whatever the file is called."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: not a regular file; name one trace file")
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == GZIP_MAGIC:
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield cast(BinaryIO, raw)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except PermissionError:
        raise ConfigError(f"{path}: not readable by this user; check its permissions") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise ConfigError(
            f"{path}: damaged gzip data ({problem}); fetch the file again"
        ) from problem
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read: {problem}") from problem


def read_lines(path: Path) -> Iterator[Line]:
    """Lines that are not blank."""
    with opened(path) as stream:
        number = 0
        while raw := stream.readline(MAX_LINE_NBYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_NBYTES:
                raise ConfigError(
                    f"{path}, line {number}: longer than {MAX_LINE_NBYTES} bytes; "
                    "this is not a line-oriented trace"
                )
            text = _decode(raw, f"{path}, line {number}", is_first=number == 1)
            if text.strip():
                line = Line(text.rstrip("\r\n"))
                line.number = number
                yield line


def read_text(path: Path) -> str:
    """The whole file."""
    with opened(path) as stream:
        return _decode(stream.read(), str(path), is_first=True)


def first_line(path: Path, nbytes: int = 1 << 16) -> str:
    """The start of the first line that is not blank, by which a format is recognised."""
    with opened(path) as stream:
        head = stream.read(nbytes)
    # A character that the read cut in two at the end is not an error of the file.
    is_cut = len(head) == nbytes
    text = _decode(head, f"{path}, line 1", is_first=True, is_cut=is_cut)
    for line in io.StringIO(text):
        if line.strip():
            return line.strip()
    if is_cut:
        raise ConfigError(f"{path}: nothing but blank in the first {nbytes} bytes; not a trace")
    raise ConfigError(f"{path}: the file is empty; name a trace that holds requests")


def _decode(raw: bytes, place: str, *, is_first: bool, is_cut: bool = False) -> str:
    if b"\0" in raw:
        raise ConfigError(f"{place}: binary data (a zero byte); a trace is text, plain or gzip")
    try:
        return raw.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError as problem:
        if is_cut and problem.start >= len(raw) - 3:
            return raw[: problem.start].decode("utf-8-sig")
        raise ConfigError(
            f"{place}: byte {raw[problem.start]:#04x} is not UTF-8; convert the file to UTF-8"
        ) from None
