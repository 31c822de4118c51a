"""The disk tiers of a run, from outside: damage to their files, and what they must not hold."""

import contextlib
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

_SHARE = 0.3
"""Of all files, per act."""


class TierFiles:
    """Every worker's folder under one directory. Workers read and write there meanwhile."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(f"tier files {seed}")
        self.num_damaged = 0

    def _blocks(self, worker_id: str = "*") -> list[Path]:
        return sorted(self._directory.glob(f"{worker_id}/*.kv"))

    def truncate(self) -> bool:
        """Some files lose their end; False when there was none."""
        return self._damage(
            lambda path: os.truncate(path, self._chance.randrange(path.stat().st_size))
        )

    def corrupt(self) -> bool:
        """A bit flips somewhere in some files; False when there was none."""
        return self._damage(self._flip)

    def delete(self) -> bool:
        """Some files vanish; False when there was none."""
        return self._damage(Path.unlink)

    def _damage(self, act: Callable[[Path], None]) -> bool:
        found = self._blocks()
        chosen = self._chance.sample(found, max(1, int(_SHARE * len(found)))) if found else []
        num_before = self.num_damaged
        for path in chosen:
            # Its worker may have dropped it, or another act may have emptied it.
            with contextlib.suppress(FileNotFoundError, ValueError):
                act(path)
                self.num_damaged += 1
        return self.num_damaged > num_before

    def _flip(self, path: Path) -> None:
        with path.open("r+b") as file:
            offset = self._chance.randrange(path.stat().st_size)
            file.seek(offset)
            (value,) = file.read(1) or b"\0"
            file.seek(offset)
            file.write(bytes([value ^ 1 << self._chance.randrange(8)]))

    def leaks(self, named: Mapping[str, int]) -> list[str]:
        """What lies there and belongs to nobody; `named` is how many blocks each worker knows.

        There may be fewer files than names: a deleted one is missed when it is loaded next.
        """
        halves = [
            f"{path.parent.name}: {path.name} was never finished"
            for path in self._directory.glob("*/*.half")
        ]
        return halves + [
            f"{worker_id}: {count} files, and {known} blocks on disk that the worker knows"
            for worker_id, known in named.items()
            if (count := len(self._blocks(worker_id))) > known
        ]
