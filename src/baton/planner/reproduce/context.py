"""What every reproduction is given: data, seeds, and somebody to tell how far it is."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.planner.reproduce.row import Row

SEEDS = (0, 1, 2)
LEAST_SEEDS = 3


def _silent(text: str) -> None:
    """Nobody listens."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The same context gives the same rows."""

    folder: Path
    seeds: tuple[int, ...] = SEEDS
    num: int | None = None
    """Only the first requests of each trace, where a check replays one."""
    say: Callable[[str], None] = _silent
    """Called with what is being simulated, for the progress line."""

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < LEAST_SEEDS:
            raise ConfigError(
                f"seeds = {self.seeds}: give at least {LEAST_SEEDS} different ones, or there is "
                "no interval"
            )

    def file(self, name: str) -> Path:
        """A file of the data folder. Raises ConfigError if it is not there."""
        path = self.folder / name
        if not path.exists():
            raise ConfigError(
                f"{path}: no such file; name a folder that holds {name} with --data or BATON_DATA"
            )
        return path


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """One published result."""

    target_id: str
    title: str
    source: str
    """Paper, and where in it."""
    run: Callable[[Context], list[Row]]
    files: tuple[str, ...] = ()
    """Of the data folder; their contents enter the digest of what was run."""
