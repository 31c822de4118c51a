"""What was measured so far, beside the output file: appended line by line, taken up again."""

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from baton.bench.profile.orders import Timed
from baton.bench.profile.shapes import Shape
from baton.errors import ConfigError
from baton.policy.service_profile import (
    ServiceDelays,
    StepGrid,
    StepOverhead,
    Subject,
    TransferCost,
)

FORMAT = "baton.profile_journal/1"


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """What the lines below belong to; nothing else may be added to them."""

    format: str = FORMAT
    subject: Subject
    grid: StepGrid
    seed: int
    quick: bool


class Sample(Timed, frozen=True, kw_only=True, tag="sample"):
    """One timed step. `beside` is what the neighbour ran meanwhile, None for nothing."""

    round: int
    shape: Shape
    held_out: bool = False
    beside: Shape | None = None
    paired: bool = False
    """Measured for contention: alone and beside a neighbour, one right after the other."""


class Transferred(msgspec.Struct, frozen=True, kw_only=True, tag="transfer"):
    """The data plane's constants."""

    cost: TransferCost


class Served(msgspec.Struct, frozen=True, kw_only=True, tag="overhead"):
    """What serving adds to a step."""

    overhead: StepOverhead


class Delayed(msgspec.Struct, frozen=True, kw_only=True, tag="delays"):
    """What lies between the parts of a deployment."""

    delays: ServiceDelays


Line = Sample | Transferred | Served | Delayed


class Journal:
    """Every line is on its way to the disk before the next step begins."""

    def __init__(self, path: Path, file: BinaryIO, header: Header, lines: list[Line]) -> None:
        self.path = path
        self.header = header
        self.lines = lines
        self.num_resumed = len(lines)
        self._file = file

    @classmethod
    def open(cls, path: Path, header: Header) -> "Journal":
        """Begin a journal, or take one up; ConfigError when it belongs to something else.

        A last line without its end was being written when the run was killed: it is dropped.
        """
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        found, lines = _parse(whole, path)
        if found is not None:
            _check_same(found, header, path)
        file = path.open("r+b") if path.exists() else path.open("x+b")
        file.truncate(len(whole))
        file.seek(len(whole))
        journal = cls(path, file, found or header, lines)
        if found is None:
            journal._write(header)
        return journal

    def add(self, line: Line) -> None:
        """Append one measurement."""
        self.lines.append(line)
        self._write(line)

    def _write(self, line: Header | Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def samples(self) -> list[Sample]:
        """Every timed step so far."""
        return [line for line in self.lines if isinstance(line, Sample)]

    def close(self) -> None:
        """Everything is on the disk; a second call does nothing."""
        if self._file.closed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def archive(self, path: Path) -> None:
        """The profile is written: its raw points stay, under a name that no run takes up."""
        self.close()
        self.path.replace(path)


def _parse(data: bytes, path: Path) -> tuple[Header | None, list[Line]]:
    if not data:
        return None, []
    lines: list[Line] = []
    header: Header | None = None
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            if header is None:
                header = msgspec.json.decode(text, type=Header)
            else:
                lines.append(msgspec.json.decode(text, type=Line))
        except (msgspec.DecodeError, ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path}, line {number}: not a line of a profile journal: {error}; "
                "delete the file to measure anew"
            ) from error
    return header, lines


def _check_same(found: Header, header: Header, path: Path) -> None:
    """Points of two models, machines or kernels never make one profile."""
    differences = found.subject.differences(header.subject)
    for name in ("format", "seed", "quick"):
        ours, theirs = getattr(found, name), getattr(header, name)
        if ours != theirs:
            differences.append(f"{name}: {ours}, not {theirs}")
    if found.subject.batch != header.subject.batch:
        differences.append(f"batch bounds: {found.subject.batch}, not {header.subject.batch}")
    if differences:
        raise ConfigError(
            f"{path}: holds points of another run ({'; '.join(differences)}); delete it to measure "
            "anew, or give another --out"
        )
