"""The one thread that copies between tiers, in order, beside the event loop."""

import asyncio
import contextlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from baton.core.effects import ClearTiers, CopyBlock, DropBlock, TierOrder
from baton.core.events import BlockCopied, Event
from baton.runtime.notice import notice
from baton.runtime.tiers.copier import TierCopier, is_load
from baton.runtime.tiers.miss import TierMiss


class TierThread:
    """Performs copies and drops in the order of their submission; every copy has one answer.

    Whatever a copy raises is its own end and not the thread's. All methods are called on the event
    loop, and so are `post` and, should the thread itself end, `lost(reason)`.
    """

    def __init__(
        self,
        copier: TierCopier,
        nbytes: int,
        loop: asyncio.AbstractEventLoop,
        post: Callable[[Event], None],
        lost: Callable[[str], None],
    ) -> None:
        self._copier = copier
        self._nbytes = nbytes
        self._loop = loop
        self._post = post
        self._lost = lost
        self._closing = False
        self._done: deque[tuple[BlockCopied, str]] = deque()
        self._is_waking = False
        self.counters: Counter[str] = Counter()
        self._jobs: queue.SimpleQueue[TierOrder | None]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="baton-tiers", daemon=True)
        self._thread.start()

    def submit(self, job: TierOrder) -> None:
        """Queue an order. Drops wait their turn too: a name may be stored again behind."""
        self._jobs.put(job)

    def close(self) -> None:
        """Finish the copy that runs, perform what drops are left, and stop: no byte moves after."""
        self._closing = True
        self._jobs.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                if isinstance(job, DropBlock):
                    self._copier.drop(job)
                elif isinstance(job, ClearTiers):
                    self._raise_floor(job.generation)
                elif not self._closing:
                    self._tell(*self._copy(job))
        except BaseException as error:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                reason = f"the tier thread ended: {type(error).__name__}: {error}"
                self._loop.call_soon_threadsafe(self._lost, reason)
            raise

    def _raise_floor(self, generation: int) -> None:
        try:
            self._copier.raise_floor(generation)
        except OSError as error:
            notice("tiers", f"generation {generation} cannot be written down: {error}")

    def _copy(self, job: CopyBlock) -> tuple[BlockCopied, str]:
        """The answer, and the counter of what became of it."""
        started_ns = time.perf_counter_ns()
        try:
            checksum = self._copier.copy(job)
        except TierMiss as miss:
            return BlockCopied(copy_id=job.copy_id, error=str(miss)), f"tier_{miss.kind}"
        except Exception as error:
            verb = "loads" if is_load(job) else "stores"
            text = f"{type(error).__name__}: {error}"
            return BlockCopied(copy_id=job.copy_id, error=text), f"tier_failed_{verb}"
        done = BlockCopied(
            copy_id=job.copy_id,
            nbytes=self._nbytes,
            checksum=checksum,
            duration_us=max(1, (time.perf_counter_ns() - started_ns) // 1000),
        )
        verb, lower = ("loads", job.source) if is_load(job) else ("stores", job.target)
        return done, f"tier_{lower}_{verb}"

    def _tell(self, done: BlockCopied, counter: str) -> None:
        self._done.append((done, counter))
        if not self._is_waking and not self._loop.is_closed():
            # One wake for all that is done until the loop looks: in a burst of copies a wake for
            # each would cost a third of the rate.
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        self._is_waking = False  # first, so that what is done from now on wakes the loop again
        while self._done:
            done, counter = self._done.popleft()
            self.counters[counter] += 1
            self._post(done)
