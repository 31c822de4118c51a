"""A CSV table, gzipped or not, as one array for each column."""

import csv
import gzip
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]


class Columns:
    """Columns by name; a number is parsed when it is asked for, an empty cell is NaN."""

    def __init__(self, path: Path, names: list[str], cells: list[tuple[str, ...]]) -> None:
        self.path = path
        self.names = tuple(names)
        self._cells = dict(zip(names, cells, strict=True)) if cells else dict.fromkeys(names, ())

    def __len__(self) -> int:
        return len(next(iter(self._cells.values()), ()))

    def __contains__(self, name: str) -> bool:
        return name in self._cells

    def texts(self, name: str) -> Texts:
        """As written."""
        return np.array(self._column(name), np.str_)

    def numbers(self, name: str) -> Floats:
        """As floats."""
        column = self._column(name)
        try:
            return np.array(column, np.float64)
        except ValueError:
            pass
        try:
            return np.array([one or "nan" for one in column], np.float64)
        except ValueError as error:
            raise ConfigError(f"{self.path}: column {name}: {error}; give numbers") from error

    def _column(self, name: str) -> tuple[str, ...]:
        if name not in self._cells:
            raise ConfigError(f"{self.path}: no column {name!r}; it has {', '.join(self.names)}")
        return self._cells[name]


def read_columns(path: Path) -> Columns:
    """A whole table. Raises ConfigError if it cannot be read or a row is ragged."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            names = next(reader, [])
            rows = list(reader)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"{path}: {error}; give a CSV file, gzipped or plain") from error
    if not names:
        raise ConfigError(f"{path}: empty; the first line must name the columns")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise ConfigError(
                f"{path}: line {number} has {len(row)} cells, the header {len(names)}"
            )
    return Columns(path, names, list(zip(*rows, strict=True)))


@lru_cache(maxsize=64)
def _cached(path: str, stamp: float) -> Columns:
    return read_columns(Path(path))


def cached_columns(path: Path) -> Columns:
    """The same table read once, and again only if the file has changed."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file")
    return _cached(str(path), os.stat(path).st_mtime)
