"""Rounds within a time: a slow machine measures fewer of them, and says so."""

import time
from collections.abc import Callable, Iterator


class Budget:
    """At least one round; another one only if it ends in time by what the last ones took."""

    def __init__(
        self,
        seconds: float,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began_s = clock()
        self.said = said

    def rounds(self, wanted: int) -> Iterator[int]:
        """Numbers of the rounds that fit."""
        first_s = self._clock()
        for number in range(wanted):
            now_s = self._clock()
            round_s = (now_s - first_s) / number if number else 0.0
            left_s = self._began_s + self._seconds - now_s
            if number and round_s > left_s:
                self.said(f"{number} rounds of {wanted}: the next one does not fit into --minutes")
                return
            yield number
