"""Copies of history that were inserted here, remembered for those who missed the word of it."""

from collections import OrderedDict

from baton.core.ids import Fence

_MAX_REMEMBERED = 1024


class InsertedCopies:
    """Bounded, oldest first. Whoever asks about a forgotten one is told that it is over."""

    def __init__(self) -> None:
        self._fences: OrderedDict[str, Fence] = OrderedDict()

    def add(self, fence: Fence) -> None:
        """This copy is inserted."""
        self._fences[fence.transfer_id] = fence
        while len(self._fences) > _MAX_REMEMBERED:
            self._fences.popitem(last=False)

    def knows(self, transfer_id: str) -> bool:
        """It was inserted here not long ago."""
        return transfer_id in self._fences

    def fence(self, transfer_id: str) -> Fence:
        """The fence under which it was inserted."""
        return self._fences[transfer_id]

    def is_of(self, fence: Fence) -> bool:
        """Exactly this reservation was inserted."""
        return self._fences.get(fence.transfer_id) == fence
