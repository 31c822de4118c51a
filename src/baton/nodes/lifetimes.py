"""How long requests decode and how much they say, from those that finished lately."""

from collections import deque


class Lifetimes:
    """The last finished requests: what a route is priced by, and an admission predicted by."""

    def __init__(self) -> None:
        self._decodes: deque[tuple[int, int]] = deque(maxlen=64)

    def observe(self, decode_us: int, num_tokens: int) -> None:
        """A request finished after it had decoded for so long."""
        self._decodes.append((max(0, decode_us), num_tokens))

    @property
    def decode_us(self) -> int:
        """t_d, the mean; 0 before anybody has finished."""
        count = len(self._decodes)
        return sum(us for us, _ in self._decodes) // count if count else 0

    def output_tokens(self, max_tokens: int) -> int:
        """Expected length of an answer that may have `max_tokens`."""
        if not self._decodes:
            return max_tokens
        return min(max_tokens, sum(n for _, n in self._decodes) // len(self._decodes))
