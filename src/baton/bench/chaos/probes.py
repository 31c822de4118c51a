"""Samples of /health and /ready, and whether they told the truth."""

import asyncio
import time

import msgspec

from baton.bench.chaos.calls import Called
from baton.bench.chaos.plan import WORKER_TIMEOUT_MS
from baton.bench.chaos.wire import Address, BrokenAnswer, Connection, get_status

_EVERY_S = 0.1
_HEALTH_BOUND_S = 1.0
_NOTICE_S = WORKER_TIMEOUT_MS / 1000 + 1.0
"""How long /ready may not know that a role is gone."""
_LONG_S = 1.0
"""How long /ready must have said yes before a refusal calls it a liar."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One question; status 0 is no answer."""

    asked_s: float
    answered_s: float
    status: int


class Probe:
    """Asks one path again and again, on a connection that it keeps while it can."""

    def __init__(self, address: Address, path: str) -> None:
        self._address = address
        self._path = path
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with Connection(self._address) as connection:
                    while await self._ask(connection):
                        await asyncio.sleep(_EVERY_S)
            except BrokenAnswer:
                now_s = time.monotonic()
                self.samples.append(Sample(asked_s=now_s, answered_s=now_s, status=0))
            await asyncio.sleep(_EVERY_S)

    async def _ask(self, connection: Connection) -> bool:
        asked_s = time.monotonic()
        status = await get_status(connection, self._address, self._path)
        sample = Sample(asked_s=asked_s, answered_s=time.monotonic(), status=status)
        self.samples.append(sample)
        return status != 0

    def was(self, status: int, since_s: float, until_s: float) -> bool:
        """Whether every sample in a time had this status, and there were some."""
        inside = [s for s in self.samples if since_s <= s.asked_s and s.answered_s <= until_s]
        return bool(inside) and all(sample.status == status for sample in inside)


def slow_health(probe: Probe) -> list[str]:
    """Samples of /health that were no 200 within a second."""
    return [
        f"/health was {s.status} after {s.answered_s - s.asked_s:.2f} s"
        for s in probe.samples
        if s.status != 200 or s.answered_s - s.asked_s > _HEALTH_BOUND_S
    ]


def is_lie(sample: Sample, down_since_s: float) -> bool:
    """Whether /ready said yes when a role had been gone for longer than it may not know."""
    return sample.status == 200 and sample.asked_s - down_since_s > _NOTICE_S


def is_contradiction(called: Called, ready: Probe) -> bool:
    """Whether a call was refused as not ready while /ready said yes before, during and after."""
    if called.code != "not_ready":
        return False
    return ready.was(200, called.started_s - _LONG_S, called.ended_s + 3 * _EVERY_S)
