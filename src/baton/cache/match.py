"""What the index answers of one prompt: how deep each owner's history of it goes."""

from collections.abc import Callable, Sequence

Reaching = Callable[[int, int], dict[str, int]]
"""The owners whose bits are set, each with this depth; nobody may write the dict."""


class Match:
    """Depths in blocks, counted from the prompt's start; an owner of none is not listed.

    Kept as steps, each the owners that still hold everything up to it; the dicts are made when
    they are asked for, since a route that nobody owns a block of needs neither.
    """

    __slots__ = ("_depths", "_memory_depths", "_memory_steps", "_reaching", "_steps", "num_blocks")

    def __init__(
        self,
        num_blocks: int,
        steps: Sequence[tuple[int, int]],
        memory_steps: Sequence[tuple[int, int]],
        reaching: Reaching,
    ) -> None:
        self.num_blocks = num_blocks
        """Blocks of the prompt that was asked for."""
        self._steps = steps  # (depth, owner bits that reach it), shallow ones first
        self._memory_steps = memory_steps
        self._reaching = reaching
        self._depths: dict[str, int] | None = None
        self._memory_depths: dict[str, int] | None = None

    @property
    def depths(self) -> dict[str, int]:
        """Leading blocks that each owner holds, in whatever tiers."""
        if self._depths is None:
            self._depths = self._spread(self._steps)
        return self._depths

    @property
    def memory_depths(self) -> dict[str, int]:
        """Leading blocks that each owner holds in memory, where its engine reads them."""
        if self._memory_depths is None:
            same = self._memory_steps == self._steps
            self._memory_depths = self.depths if same else self._spread(self._memory_steps)
        return self._memory_depths

    @property
    def best(self) -> tuple[str, int] | None:
        """The deepest owner and its depth, the first by name of several; None without any."""
        if not self._steps:
            return None
        depth, owners = self._steps[-1]
        return min(self._reaching(depth, owners)), depth

    def _spread(self, steps: Sequence[tuple[int, int]]) -> dict[str, int]:
        depths: dict[str, int] = {}
        for depth, owners in steps:  # a deeper step overwrites what the shallower ones said
            reaching = self._reaching(depth, owners)
            if depths:
                depths.update(reaching)
            else:
                depths = reaching.copy()
        return depths

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __repr__(self) -> str:
        return f"Match({self.depths}, memory={self.memory_depths}, of={self.num_blocks})"
