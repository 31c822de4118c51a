"""A CSV file with a header as rows by column name."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.workload.loaders.text import Line, read_lines

MAX_SHOWN = 8


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The named columns of one line, and where the line is."""

    place: str
    values: dict[str, str]


def split_header(line: str) -> tuple[str, ...]:
    """Column names; none if the line is not CSV."""
    try:
        return tuple(name.strip() for name in next(csv.reader([line], strict=True), []))
    except csv.Error:
        return ()


def has_columns(line: str, columns: Sequence[str]) -> bool:
    """Whether a header names all of these."""
    return set(columns) <= set(split_header(line))


def read_table(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Row]:
    """Rows with the required columns and those of the optional ones that the header names."""
    lines = read_lines(path)
    header = next(lines, None)
    if header is None:
        raise ConfigError(f"{path}: the file is empty; name a trace that holds requests")
    wanted = _positions(path, header, columns, optional)
    width = len(split_header(header))
    for line in lines:
        place = f"{path}, line {line.number}"
        cells = _split(line, place)
        if len(cells) != width:
            raise ConfigError(
                f"{place}: {len(cells)} columns where the header has {width}; "
                "the row is cut off or has a stray comma"
            )
        yield Row(place=place, values={name: cells[at].strip() for name, at in wanted.items()})


def _split(line: Line, place: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as problem:
        raise ConfigError(f"{place}: not CSV ({problem}); correct the row") from None


def _positions(
    path: Path, header: Line, columns: Sequence[str], optional: Sequence[str]
) -> dict[str, int]:
    names = split_header(header)
    place = f"{path}, line {header.number}"
    shown = ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
    for name in columns:
        if name not in names:
            raise ConfigError(
                f"{place}: no column {name!r}; this format needs {', '.join(columns)} "
                f"and the header has {shown[:400]}"
            )
    wanted = [name for name in (*columns, *optional) if name in names]
    for name in wanted:
        if names.count(name) > 1:
            raise ConfigError(f"{place}: column {name!r} is there twice; remove one")
    return {name: names.index(name) for name in wanted}
