"""Columns of a CSV file, compressed or not, and the folder of one model's layer timings."""

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from baton.errors import ConfigError
from baton.hardware.missing import MissingCell
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.nearest import nearest


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Of `path`, or of the same name with .gz behind it."""
    packed = path.with_name(path.name + ".gz")
    try:
        if path.exists():
            with path.open(newline="") as plain:
                yield from csv.DictReader(plain)
        else:
            with gzip.open(packed, "rt", newline="") as text:
                yield from csv.DictReader(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the table, nor {packed.name}: {error}") from error


def number(path: Path, row: dict[str, str], column: str) -> float:
    """Raises ConfigError that names the file, the column and the value."""
    value = row.get(column)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: {column} is {value!r}; a number is needed") from None


def find_folder(root: Path, system: str, model: ModelShape, tp: int) -> Path:
    """`root`/SYSTEM/OWNER/MODEL/VARIANT/tpN, where `root` may also be the folder above it.

    Raises MissingCell that names what there is.
    """
    inner = root / "layer-profiles"
    base = inner if inner.is_dir() else root
    known = {_key(path.name): path for path in _folders(base)}
    if _key(system) not in known:
        close = ", ".join(nearest(system, [path.name for path in known.values()]))
        raise MissingCell(f"{base}: no layer timings of system {system!r}; nearest: {close}")
    models = {
        path: path.name for owner in _folders(known[_key(system)]) for path in _folders(owner)
    }
    found = [path for path, name in models.items() if _is(name, model)]
    if not found:
        raise MissingCell(
            f"{base}: no layer timings of {model.name} on {system}; there are: "
            + ", ".join(sorted(models.values()))
        )
    cuts = {path.name: path for variant in _folders(found[0]) for path in _folders(variant)}
    if f"tp{tp}" not in cuts:
        raise MissingCell(
            f"{found[0]}: no layer timings of tp{tp}; there are: {', '.join(sorted(cuts))}"
        )
    return cuts[f"tp{tp}"]


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir()) if path.is_dir() else []


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _is(name: str, model: ModelShape) -> bool:
    if _key(name) == _key(model.name):
        return True
    try:
        return find_model(name).name == model.name
    except ConfigError:
        return False
