"""Checksums on a thread of their own, beside the one that moves: on two cores neither waits.

A core that copies 12 GB/s and hashes 27 GB/s from memory does both at 0.69 of the copy's rate;
with the next chunk summed while this one moves, the copy is the limit again. Where the process has
one core only, whoever needs a sum first takes it, and nothing is lost but a switch.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.checksum import checksum
from baton.runtime.dataplane.ledger import Ledger, failed
from baton.runtime.dataplane.plane import DigestOrder, Finished, PlaneFault, PutOrder
from baton.runtime.dataplane.runs import Run, coalesce, fault_in, local_views, stage_fault

PIECE_NBYTES = 4096 << 10
"""What moves at once. Through the host's memory a post is the copy itself and nothing else happens
meanwhile; smaller ones measured slower, 1.5 times a plain copy at 512 KiB, 1.0 at 4 MiB."""
WORTH_NBYTES = 1 << 20
"""Fewer bytes are summed where they are: 40 us of hashing cost less than waking a thread."""


class Sum:
    """The checksum of the bytes of `views`, taken by whichever thread comes first."""

    def __init__(self, views: Sequence[Bytes]) -> None:
        self._views = views
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._value: int | None = None

    def take(self) -> None:
        """Take it, unless somebody has begun to."""
        if self._begun.acquire(blocking=False):
            try:
                self._value = checksum(self._views)
            finally:
                self._done.set()

    def result(self) -> int:
        """The sum; takes it, or waits for the thread that is about to have it."""
        self.take()
        self._done.wait()
        assert self._value is not None, "the thread that took the sum failed"
        return self._value


class SummingThread:
    """Takes the sums of a ledger's orders; those of reads and digests end them, too."""

    def __init__(self, ledger: Ledger, *, hashed: bool) -> None:
        self.regions: list[Bytes] = []
        """The own memory, by pipeline stage."""
        self._ledger = ledger
        self._hashed = hashed
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="baton-nixl-sums", daemon=True)
        self._thread.start()

    def is_worth_a_thread(self, order: PutOrder) -> bool:
        """Whether an order's sum is taken here."""
        return self._hashed and sum(nbytes for _, _, nbytes in order.runs) >= WORTH_NBYTES

    def fault_in(self, order: PutOrder, sizes: Sequence[int]) -> str:
        """What of an order leaves the memory of either side, or an empty text."""
        fault = stage_fault(order.local_stage, len(self.regions))
        fault = fault or stage_fault(order.remote_stage, len(sizes))
        if fault:
            return fault
        local_nbytes = self.regions[order.local_stage].size
        return fault_in(order.runs, local_nbytes, sizes[order.remote_stage])

    def ahead(self, handle: int, sizes: Sequence[int]) -> tuple[int, Sum] | None:
        """Begin to sum the next write while another moves, but none behind it: what was summed long
        ago has left the cache. A sum that is not needed after all has read, and changed nothing."""
        order = self._ledger.peek(handle)
        if not isinstance(order, PutOrder) or order.direction != "write":
            return None
        if not self.is_worth_a_thread(order) or self.fault_in(order, sizes):
            return None
        runs = coalesce(order.runs)
        if sum(nbytes for _, _, nbytes in runs) > PIECE_NBYTES:
            return None
        found = Sum(local_views(self.regions[order.local_stage], runs))
        self._jobs.put(found.take)
        return handle, found

    def landed(self, finished: Finished, region: Bytes, runs: Sequence[Run]) -> None:
        """Sum what a read has brought, then end it."""
        self._jobs.put(lambda: self._end(finished, local_views(region, runs)))

    def digest(self, handle: int) -> None:
        """Run an admitted digest: here when it is short, else on the thread."""
        order = self._ledger.start(handle)
        if order is None:
            return
        assert isinstance(order, DigestOrder)
        runs = [(offset, offset, nbytes) for offset, nbytes in order.runs]
        fault = stage_fault(order.stage, len(self.regions))
        size = 0 if fault else self.regions[order.stage].size
        fault = fault or fault_in(runs, size, size)
        if fault:
            self._ledger.finish_running(failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault))
            return
        finished = Finished(
            handle=handle,
            reservation_id=order.reservation_id,
            chunk_id=order.chunk_id,
            nbytes=sum(nbytes for _, _, nbytes in runs),
        )
        views = local_views(self.regions[order.stage], coalesce(runs))
        if finished.nbytes < WORTH_NBYTES:
            self._end(finished, views, is_digest=True)
        else:
            self._jobs.put(lambda: self._end(finished, views, is_digest=True))

    def close(self) -> None:
        """Stop behind what is queued. The ledger must refuse orders by now."""
        self._jobs.put(None)
        self._thread.join()

    def _end(self, finished: Finished, views: Sequence[Bytes], *, is_digest: bool = False) -> None:
        handle, began_s = finished.handle, time.perf_counter()
        value = checksum(views, lambda: self._ledger.stop_of(handle) is not None)
        if value is None:
            stop = self._ledger.stop_of(handle) or PlaneFault.CANCELLED
            ended = replace(finished, nbytes=0, duration_us=0, error=stop)
        else:
            ended = replace(finished, checksum=value)
            if is_digest:
                ended = replace(ended, duration_us=round(1e6 * (time.perf_counter() - began_s)))
        self._ledger.finish_running(ended)

    def _main(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
        except BaseException:
            # A bug here must not leave callers waiting: everything ends, and the traceback shows.
            self._ledger.abandon()
            raise
