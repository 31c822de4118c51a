"""How often a later prompt goes on from the history of a finished request."""

from collections import OrderedDict
from collections.abc import Sequence

_MAX_HISTORIES = 4096
_DECAY = 0.98
"""Per finished request: about the last fifty count."""
_PRIOR = 0.5
"""Before anything was seen; it weighs as much as one request."""


class Continuations:
    """Remembers the last block of each finished history, bounded, oldest first."""

    def __init__(self) -> None:
        self._ends: OrderedDict[bytes, None] = OrderedDict()
        self._finished = 1.0
        self._continued = _PRIOR

    @property
    def share(self) -> float:
        """Of the recent histories, how many were gone on from; 0 to 1."""
        return min(1.0, self._continued / self._finished)

    def finished(self, last_block: bytes) -> None:
        """A request has ended with this history."""
        self._finished = _DECAY * self._finished + 1
        self._continued *= _DECAY
        self._ends[last_block] = None
        while len(self._ends) > _MAX_HISTORIES:
            self._ends.popitem(last=False)

    def arrived(self, block_hashes: Sequence[bytes]) -> None:
        """A prompt of these blocks has come; it goes on from a history at most once."""
        for block_hash in reversed(block_hashes):
            if block_hash in self._ends:
                del self._ends[block_hash]
                self._continued += 1
                return
