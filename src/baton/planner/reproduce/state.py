"""Which reproductions are done: rows by id, each with a digest of all that they depend on."""

import hashlib
from functools import cache
from pathlib import Path

import msgspec

import baton
from baton.errors import ConfigError
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row

CODE = (
    "compiled.py",
    "core",
    "goodput",
    "hardware",
    "nodes",
    "planner",
    "policy",
    "sim",
    "workload",
)
"""What a figure may depend on."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One finished reproduction."""

    digest: str
    seconds: float
    rows: tuple[Row, ...]


class State(msgspec.Struct, kw_only=True):
    """A file of finished ones; written after each, so that an interrupted run goes on."""

    done: dict[str, Done] = {}

    def finished(self, one: Reproduction, context: Context) -> Done | None:
        """What was found before, from the same code, data and seeds."""
        found = self.done.get(one.target_id)
        return found if found is not None and found.digest == digest(one, context) else None


def load_state(path: Path | None) -> State:
    """Empty without a file."""
    if path is None or not path.exists():
        return State()
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as problem:
        raise ConfigError(
            f"--state {path}: {problem}; name another file, or remove this one"
        ) from None


def save_state(path: Path | None, state: State) -> None:
    """Whole or not at all."""
    if path is None:
        return
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
    beside.replace(path)


def digest(one: Reproduction, context: Context) -> str:
    """Of code, data files and seeds."""
    found = hashlib.sha256(_code().encode())
    found.update(repr((one.target_id, context.seeds, context.num)).encode())
    for name in one.files:
        found.update(f"{name} {_of_file(context.file(name))}".encode())
    return found.hexdigest()[:16]


@cache
def _code() -> str:
    root = Path(baton.__file__).parent
    found = hashlib.sha256()
    for name in CODE:
        path = root / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()


@cache
def _of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
