"""A link that is slower than memory: a copy takes at least as long as its bytes would on it."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.005
"""How often a waiting copy asks whether it was stopped."""

Pace = Callable[[int, float, Callable[[], bool]], None]
"""Called after a copy with its bytes, when it began (`perf_counter`, s) and what says to stop."""


class SlowLink:
    """Holds the transfer thread until a link of so many bytes per second had carried the bytes.

    The rate is the content of the file at `path`, read at every copy; without that file, or with
    an empty one, there is no limit.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, nbytes: int, began_s: float, stopped: Callable[[], bool]) -> None:
        """Return when the link is free again, or soon after a stop."""
        bytes_per_s = self._bytes_per_s()
        if bytes_per_s <= 0:
            return
        end_s = began_s + nbytes / bytes_per_s
        while (left_s := end_s - time.perf_counter()) > 0 and not stopped():
            time.sleep(min(left_s, _LOOK_S))

    def _bytes_per_s(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            return float(self._path.read_text())
        return 0.0
