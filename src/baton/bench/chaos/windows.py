"""How long and how often the gateway has no descriptors in a part, so that others get a turn."""

_LONGEST_S = 1.5
_SHORTEST_S = 0.3
_LENGTH_SHARE = 0.05
_TOTAL_SHARE = 0.25
_LONG_PART_S = 40.0
GRACE_S = 1.0
"""Until the gateway has noticed that descriptors are back."""


class GatewayWindows:
    """The windows of one part: longer parts have longer ones, none has more than its share."""

    def __init__(self, part_s: float) -> None:
        self._part_s = part_s
        self.taken: list[tuple[float, float]] = []
        """When the gateway had no descriptors, with the grace after it."""

    @property
    def length_s(self) -> float:
        """Of one window."""
        return min(_LONGEST_S, max(_SHORTEST_S, _LENGTH_SHARE * self._part_s))

    @property
    def may_wait_for_a_worker(self) -> bool:
        """Whether a window may last until a worker has started, which takes many seconds."""
        return self._part_s >= _LONG_PART_S

    @property
    def has_room(self) -> bool:
        """Whether one more stays within the share; the first one always may."""
        spent_s = sum(end_s - start_s for start_s, end_s in self.taken)
        return not self.taken or spent_s + self.length_s + GRACE_S <= _TOTAL_SHARE * self._part_s

    def close(self, start_s: float, end_s: float) -> None:
        """Book one that is over."""
        self.taken.append((start_s, end_s))
