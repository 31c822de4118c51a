"""The host's clock: integer microseconds, monotonic, meaningful in this process only."""

import time


def now_us() -> int:
    """Microseconds since an arbitrary start."""
    return time.monotonic_ns() // 1000
