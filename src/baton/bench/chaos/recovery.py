"""How long a death is felt: until the first request that was submitted after it is answered."""

import asyncio
import itertools
import time

import msgspec

from baton.bench.chaos.asks import probe_ask
from baton.bench.chaos.calls import End, call
from baton.bench.chaos.lives import Lives
from baton.bench.chaos.plan import LEASE_MS, REQUEST_BOUND_S
from baton.bench.chaos.wire import Address

LIMIT_S = LEASE_MS / 1000 + 1.0
_RETRY_S = 0.05


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """One death and what followed."""

    worker_id: str
    duration_s: float
    is_outage: bool
    """A whole role was gone meanwhile, or the gateway had no descriptors: a process had to start,
    or a window to close, before anything could be answered."""


class Recoveries:
    """Watches deaths, each on its own."""

    def __init__(self, address: Address, lives: Lives) -> None:
        self._address = address
        self._lives = lives
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self.blocked = False
        """The gateway has no descriptors now."""
        self.done: list[Recovery] = []

    def died(self, worker_id: str, died_s: float) -> None:
        """A worker is dead: submit requests until one is answered."""
        task = asyncio.create_task(self._measure(worker_id, died_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for those that are still measured."""
        await asyncio.gather(*self._tasks)

    async def _measure(self, worker_id: str, died_s: float) -> None:
        outage = False
        while time.monotonic() - died_s < REQUEST_BOUND_S:
            outage |= self.blocked or bool(self._lives.down_since_s)
            ask = probe_ask(next(self._numbers))
            called = await call(self._address, ask, None, bound_s=REQUEST_BOUND_S)
            outage |= self.blocked or bool(self._lives.down_since_s)
            if called.end is End.EQUAL:
                break
            await asyncio.sleep(_RETRY_S)
        self.done.append(
            Recovery(worker_id=worker_id, duration_s=time.monotonic() - died_s, is_outage=outage)
        )
