"""From the masks along a prompt to who ends where; the same few differences come again."""

from collections.abc import Sequence

from baton.cache.match import Ending, Steps
from baton.cache.owners import OwnerTable

_MAX_REMEMBERED = 16_384


class _Difference:
    """Who holds the blocks of one mask and not those of the next, in any tier and in memory."""

    __slots__ = ("after", "anywhere", "before", "in_memory", "is_plain")

    def __init__(self, before: int, after: int, owners: OwnerTable) -> None:
        # Kept alive: this is remembered under the identity of the two.
        self.before, self.after = before, after
        held, memory = owners.split(before)
        held_after, memory_after = owners.split(after)
        ends, memory_ends = held & ~held_after, memory & ~memory_after
        self.is_plain = not held_after & ~held and not memory_after & ~memory
        """Nobody comes back after a hole."""
        self.anywhere = Ending(owners.names(ends))
        same = ends == memory_ends
        self.in_memory = self.anywhere if same else Ending(owners.names(memory_ends))


class MatchSteps:
    """Remembers differences by the identity of their masks, which are one object each."""

    def __init__(self, owners: OwnerTable) -> None:
        self._owners = owners
        self._known: dict[tuple[int, int], _Difference] = {}
        self._num_joined = 0

    def of(self, changes: Sequence[tuple[int, int]], num_blocks: int) -> tuple[Steps, Steps]:
        """Depths and who ends there: in any tier, and in memory. The same object if equal."""
        if self._owners.dead:
            return self._one_by_one(changes, num_blocks)
        if self._num_joined != self._owners.num_joined:
            self._num_joined = self._owners.num_joined
            self._known.clear()
        steps: list[tuple[int, Ending]] = []
        memory_steps, is_same = steps, True
        before = -1
        for start, after in (*changes, (num_blocks, 0)):
            if before > 0:
                step = self._known.get((id(before), id(after))) or self._remember(before, after)
                if not step.is_plain:
                    return self._one_by_one(changes, num_blocks)
                if is_same and step.in_memory is not step.anywhere:
                    memory_steps, is_same = steps.copy(), False
                if step.anywhere.owners:
                    steps.append((start, step.anywhere))
                if not is_same and step.in_memory.owners:
                    memory_steps.append((start, step.in_memory))
            before = after
        return steps, memory_steps

    def _remember(self, before: int, after: int) -> _Difference:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        step = _Difference(before, after, self._owners)
        self._known[id(before), id(after)] = step
        return step

    def _one_by_one(
        self, changes: Sequence[tuple[int, int]], num_blocks: int
    ) -> tuple[Steps, Steps]:
        """Whoever has a hole ends at it; with dead owners, whose bits are out of the masks here."""
        steps: list[tuple[int, Ending]] = []
        memory_steps: list[tuple[int, Ending]] = []
        reach = memory = -1
        for start, mask in (*changes, (num_blocks, 0)):
            anywhere, in_memory = self._owners.split(mask)
            if start:
                _end(steps, start, self._owners, reach & ~anywhere)
                _end(memory_steps, start, self._owners, memory & ~in_memory)
            reach &= anywhere
            memory &= in_memory
        return steps, memory_steps


def _end(steps: list[tuple[int, Ending]], depth: int, owners: OwnerTable, mask: int) -> None:
    if mask > 0:
        steps.append((depth, Ending(owners.names(mask))))
