"""A half-open interval of layers, heads or positions."""

from typing import NamedTuple


class Span(NamedTuple):
    """From `start` up to, and without, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many it holds."""
        return max(0, self.stop - self.start)

    def common(self, other: "Span") -> "Span":
        """What both hold; empty where they do not meet."""
        start = max(self.start, other.start)
        return Span(start, max(start, min(self.stop, other.stop)))
