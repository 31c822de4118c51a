"""A planted bug as a value: which line is changed into what, why it matters, who must notice."""

from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
MAX_SEEDS = 400
"""The simulator finds a planted bug within this many seeds of its ordinary range, or not at all."""


class Vopr(msgspec.Struct, frozen=True, tag="vopr"):
    """Killed by the simulator, and by no checker but these.

    `seeds` are tried first, only to save time; all of them lie in the ordinary range, and when the
    draw of plans changes under them, the whole range is searched.
    """

    checkers: tuple[str, ...]
    seeds: tuple[int, ...] = ()


class Explore(msgspec.Struct, frozen=True, tag="explore"):
    """Killed by the exhaustive model of one request under these budgets, and by what it `says`."""

    says: str
    budgets: dict[str, int]


class ByTests(msgspec.Struct, frozen=True, tag="tests"):
    """Killed by tests: each of these node ids must fail, in its own assertions."""

    nodes: tuple[str, ...]


Killer = Vopr | Explore | ByTests


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """`line` without its indentation occurs exactly once in `file` and becomes `planted`."""

    name: str
    file: str
    line: str
    planted: str
    why: str
    killer: Killer

    @property
    def path(self) -> Path:
        """Where the line stands."""
        return ROOT / "src" / "baton" / self.file

    @property
    def module(self) -> str:
        """The module that is loaded with the change."""
        return "baton." + self.file.removesuffix(".py").replace("/", ".")


class StaleMutant(Exception):
    """The line to change is gone, or it is not the only one of its kind."""


def plant(mutant: Mutant, source: str) -> str:
    """The source text with the one line changed."""
    lines = source.split("\n")
    hits = [number for number, line in enumerate(lines) if line.strip() == mutant.line]
    if len(hits) != 1:
        raise StaleMutant(
            f"{mutant.name}: {mutant.file} has the line {mutant.line!r} {len(hits)} times; "
            f"change the catalogue so that it names one line"
        )
    old = lines[hits[0]]
    indent = old[: len(old) - len(old.lstrip())]
    lines[hits[0]] = indent + mutant.planted if mutant.planted else ""
    return "\n".join(lines)
