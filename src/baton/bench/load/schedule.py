"""When each request goes out, and how late the client itself was."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import numpy as np

from baton.goodput.record import RequestRecord

SPIN_US = 1500
"""Timers of the event loop count whole milliseconds; the last stretch is waited for by turns."""
LATE_US = 5000
"""A p99 above it says that the client, or its machine, could not keep to the schedule."""
US_PER_S = 1_000_000


async def sleep_until(
    due_us: int,
    clock: Callable[[], int],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Wait without ever being early, and without the rounding of timers."""
    while (left_us := due_us - clock()) > 0:
        await sleep((left_us - SPIN_US) / US_PER_S if left_us > SPIN_US else 0)


def leavers(num: int, rate: float, seed: int) -> frozenset[int]:
    """Which requests are given up by their client: exactly that share, chosen by the seed."""
    return frozenset(random.Random(seed).sample(range(num), round(num * rate)))


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How long after their schedule requests were sent, in microseconds."""

    p50_us: float
    p99_us: float
    max_us: float
    num: int

    @property
    def is_late(self) -> bool:
        """Whether the client disturbed what it measured."""
        return self.p99_us > LATE_US

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_us / 1e3:.2f} ms, p99 {self.p99_us / 1e3:.2f} ms, "
            f"max {self.max_us / 1e3:.2f} ms"
        )


def lateness(records: Sequence[RequestRecord]) -> Lateness | None:
    """Of all requests that were sent; None when none was."""
    if not records:
        return None
    late = np.array([record.sent_us - record.scheduled_us for record in records], dtype=np.float64)
    return Lateness(
        p50_us=float(np.percentile(late, 50)),
        p99_us=float(np.percentile(late, 99)),
        max_us=float(late.max()),
        num=len(late),
    )
