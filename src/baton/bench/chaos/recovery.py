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
        self.is_blocked = False
        """The gateway has no descriptors now."""
        self.num_blocks = 0
        self.done: list[Recovery] = []

    def block(self) -> None:
        """From now until `is_blocked` is false again the gateway has no descriptors."""
        self.is_blocked = True
        self.num_blocks += 1

    def died(self, worker_id: str, died_s: float) -> None:
        """A worker is dead: submit requests until one is answered."""
        task = asyncio.create_task(self._measure(worker_id, died_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for those that are still measured."""
        await asyncio.gather(*self._tasks)

    @property
    def _num_disturbances(self) -> int:
        return self._lives.num_outages + self.num_blocks

    async def _measure(self, worker_id: str, died_s: float) -> None:
        lives, before = self._lives, self._num_disturbances
        outage = self.is_blocked or bool(lives.down_since_s)
        while time.monotonic() - died_s < REQUEST_BOUND_S:
            ask = probe_ask(next(self._numbers))
            called = await call(self._address, ask, None, bound_s=REQUEST_BOUND_S)
            outage |= self._num_disturbances > before or bool(lives.down_since_s)
            if called.end is End.EQUAL:
                break
            await asyncio.sleep(_RETRY_S)
        self.done.append(
            Recovery(worker_id=worker_id, duration_s=time.monotonic() - died_s, is_outage=outage)
        )
