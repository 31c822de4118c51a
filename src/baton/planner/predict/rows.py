"""Rows of measured deployments: how a table of them is read and written."""

import csv
import gzip
import math
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.output_file import output_file

REQUIRED = ("backend", "model_path", "system", "mode", "isl", "osl")
POOL_COLUMNS = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
MEASURED = ("silicon_ttft_ms", "silicon_tpot_ms")
PREDICTED = ("predicted_ttft_ms", "predicted_tpot_ms", "source", "is_extrapolated")
_POOLED = ("batch_size", "num_workers", *POOL_COLUMNS)
_OTHERS = ("id", "backend_version", "precision", "gemm_quant_mode", "moe_quant_mode", "batch_size")
_NOTES = ("source_kind", "measured_date", "concurrency")
_POOLS = tuple(f"{pool}_{name}" for pool in ("prefill", "decode") for name in _POOLED)
COLUMNS = frozenset((*REQUIRED, *_OTHERS, *_NOTES, *POOL_COLUMNS, *_POOLS, *MEASURED, *PREDICTED))


LARGEST = 10_000_000.0
"""Of any cell: tokens, requests, milliseconds."""


class Row(msgspec.Struct, frozen=True):
    """One deployment, cells as written."""

    line: int
    cells: dict[str, str]
    problem: str = ""
    """Why it cannot be read as a deployment."""

    def text(self, name: str) -> str:
        """A cell, "" where the column is missing."""
        return self.cells.get(name, "").strip()

    def number(self, name: str) -> float:
        """0 for an empty cell. Raises ConfigError for what is no number, or out of bounds."""
        cell = self.text(name)
        if not cell:
            return 0.0
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not 0 <= value <= LARGEST:
            raise ConfigError(f"{name} is {cell!r}; give a number from 0 to {LARGEST:,.0f}")
        return value

    def count(self, name: str) -> int:
        """The same of a whole number, which tables spell 8 or 8.0."""
        value = self.number(name)
        if value != int(value):
            raise ConfigError(f"{name} is {self.text(name)!r}; give a whole number")
        return int(value)

    def measured(self, name: str) -> float:
        """NaN where it was not measured."""
        return self.number(name) or math.nan


class Table(msgspec.Struct, frozen=True):
    """Rows of one file."""

    names: tuple[str, ...]
    rows: list[Row]

    @property
    def is_measured(self) -> bool:
        """Whether it says what each deployment really took."""
        return all(name in self.names for name in MEASURED)


def read_table(path: Path) -> Table:
    """A CSV file, gzipped or plain. Raises ConfigError for what is missing or not known."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            names = tuple(name.strip() for name in next(reader, []))
            cells = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise ConfigError(f"{path}: {error}; give a CSV file, gzipped or plain") from error
    _check_names(path, names)
    return Table(names, [_row(line, names, row) for line, row in cells])


def _row(line: int, names: tuple[str, ...], cells: list[str]) -> Row:
    """A row of another length than the head is kept, so that the others are not lost with it."""
    problem = ""
    if len(cells) != len(names):
        problem = f"{len(cells)} cells, the header has {len(names)}"
    padded = [*cells, *[""] * len(names)][: len(names)]
    return Row(line, dict(zip(names, padded, strict=True)), problem)


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise ConfigError(f"{path}: no column {', '.join(missing)}; a deployment needs it")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ConfigError(
            f"{path}: column {', '.join(map(repr, unknown))} is not known; "
            f"use {', '.join(sorted(COLUMNS))}"
        )
    if len(set(names)) != len(names):
        raise ConfigError(f"{path}: a column is named twice")


def write_table(path: Path, table: Table, predicted: list[tuple[str, str, str, str]]) -> None:
    """The same rows with what was predicted, in `PREDICTED` order."""
    names = [name for name in table.names if name not in PREDICTED]
    opened = gzip.open if path.suffix == ".gz" else open
    with (
        output_file(path, "--out") as place,
        opened(place, "wt", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, *PREDICTED])
        for row, values in zip(table.rows, predicted, strict=True):
            writer.writerow([*(row.cells[name] for name in names), *values])
