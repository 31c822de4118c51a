"""What the index answers of one prompt: how deep each owner's history of it goes."""

from collections.abc import Sequence


class Ending:
    """Owners that hold everything up to one depth and no more."""

    __slots__ = ("_depth", "_depths", "owners")

    def __init__(self, owners: tuple[str, ...]) -> None:
        self.owners = owners
        self._depth = 0
        self._depths: dict[str, int] = {}

    def at(self, depth: int) -> dict[str, int]:
        """The owners with this depth. Prompts that share a beginning ask for the same again."""
        if self._depth != depth:
            self._depth, self._depths = depth, dict.fromkeys(self.owners, depth)
        return self._depths.copy()


Steps = Sequence[tuple[int, Ending]]
"""Depths and who ends there, shallow first. No owner is in two of them."""


class Match:
    """Depths in blocks, counted from the prompt's start; an owner of none is not listed.

    The dicts are made when they are asked for: not every policy wants both.
    """

    __slots__ = ("_depths", "_memory_depths", "_memory_steps", "_steps", "num_blocks")

    def __init__(self, num_blocks: int, steps: Steps, memory_steps: Steps) -> None:
        self.num_blocks = num_blocks
        """Blocks of the prompt that was asked for."""
        self._steps = steps
        self._memory_steps = memory_steps
        self._depths: dict[str, int] | None = None
        self._memory_depths: dict[str, int] | None = None

    @property
    def depths(self) -> dict[str, int]:
        """Leading blocks that each owner holds, in whatever tiers."""
        if self._depths is None:
            self._depths = _spread(self._steps)
        return self._depths

    @property
    def memory_depths(self) -> dict[str, int]:
        """Leading blocks that each owner holds in memory, where its engine reads them."""
        if self._memory_depths is None:
            same = self._memory_steps is self._steps
            self._memory_depths = self.depths if same else _spread(self._memory_steps)
        return self._memory_depths

    @property
    def best(self) -> tuple[str, int] | None:
        """The deepest owner and its depth, the first by name of several; None without any."""
        if not self._steps:
            return None
        depth, ending = self._steps[-1]
        return min(ending.owners), depth

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __repr__(self) -> str:
        return f"Match({self.depths}, memory={self.memory_depths}, of={self.num_blocks})"


def _spread(steps: Steps) -> dict[str, int]:
    """A copy of the largest step's dict, and the few others one by one."""
    largest: Ending | None = None
    most = base_depth = 0
    for depth, ending in steps:
        if len(ending.owners) > most:
            most, largest, base_depth = len(ending.owners), ending, depth
    if largest is None:
        return {}
    depths = largest.at(base_depth)
    for depth, ending in steps:
        if ending is not largest:
            for owner in ending.owners:
                depths[owner] = depth
    return depths
