"""Virtual time: one heap, one total order (at, seq)."""

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Timeline:
    """Actions at world times in microseconds; equal times run in the order they were set."""

    def __init__(self) -> None:
        self.now_us = 0
        self.num_steps = 0
        self._heap: list[tuple[int, int, Action]] = []
        self._seq = 0

    def at(self, at_us: int, action: Action) -> None:
        """Run `action` at a world time; the past is now."""
        self._seq += 1
        heapq.heappush(self._heap, (max(at_us, self.now_us), self._seq, action))

    def after(self, delay_us: int, action: Action) -> None:
        """Run `action` after a delay."""
        self.at(self.now_us + delay_us, action)

    def step(self) -> bool:
        """Run the next action; False when there is none."""
        if not self._heap:
            return False
        self.now_us, _, action = heapq.heappop(self._heap)
        self.num_steps += 1
        action()
        return True

    def run_until(self, end_us: int) -> None:
        """Run everything up to and including a world time, and be there."""
        while self._heap and self._heap[0][0] <= end_us:
            self.step()
        self.now_us = max(self.now_us, end_us)
