"""The transfer thread: it takes orders one by one, moves their bytes and notifies the peer.

It sleeps in a queue while there is nothing to do. A notification that does not fit the peer's
buffer is parked and tried again, so a frozen peer delays nobody but itself.
"""

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from baton.runtime.dataplane.arena import Arena, Bytes
from baton.runtime.dataplane.checksum import checksum, copy_and_checksum
from baton.runtime.dataplane.ledger import Ledger, Order, failed
from baton.runtime.dataplane.meter import Meter
from baton.runtime.dataplane.notify import RECORDS_PER_PACKET, NotifySender
from baton.runtime.dataplane.pace import Pace
from baton.runtime.dataplane.plane import (
    DigestOrder,
    Finished,
    PlaneFault,
    PutOrder,
    ShmRegion,
)
from baton.runtime.dataplane.runs import (
    coalesce,
    fault_in,
    local_views,
    remote_views,
    stage_fault,
)

_WAKE = 0
_CLOSE = -1
_HOLD_S = 0.0004
"""How long a notification may wait for company while more orders are queued: waking the peer costs
as much as moving 100 KiB, and a window of credit has room for a packet of a few chunks."""
_BACKOFF_MIN_S = 0.0005
_BACKOFF_MAX_S = 0.02


class Peer:
    """One life of a connected peer: its mapped memory, stage by stage, and the way to notify it."""

    def __init__(
        self, descriptor: ShmRegion, arenas: Sequence[Arena], sender: NotifySender
    ) -> None:
        self.descriptor = descriptor
        self.sender = sender
        self.parked: deque[tuple[int, float]] = deque()
        """Handles of what is moved but not notified, oldest first, and when it was moved (s)."""
        self._arenas = arenas

    @property
    def num_stages(self) -> int:
        """Pipeline stages of the peer."""
        return len(self._arenas)

    def region(self, stage: int) -> Bytes:
        """The bytes of a stage that orders may reach."""
        start = 0 if stage else self.descriptor.offset
        return self._arenas[stage].buffer[start : start + self.descriptor.sizes[stage]]

    def close(self) -> None:
        """Release the mappings and the socket."""
        self.sender.close()
        for arena in self._arenas:
            arena.close()


class TransferThread:
    """Runs the orders of a ledger against the own memory and the peers that `find` knows."""

    def __init__(
        self,
        ledger: Ledger,
        meter: Meter,
        find: Callable[[str, int], Peer | None],
        *,
        hashed: bool,
        notify_timeout_s: float,
        pace: Pace | None = None,
    ) -> None:
        self.regions: list[Bytes] = []
        """The own memory, by pipeline stage."""
        self.num_orders = 0
        """Puts whose bytes were moved."""
        self.num_runs = 0
        """Contiguous stretches that were copied for them."""
        self._ledger = ledger
        self._meter = meter
        self._find = find
        self._hashed = hashed
        self._notify_timeout_s = notify_timeout_s
        self._pace = pace
        self._wakes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._retired: deque[Peer] = deque()
        self._waiting: set[Peer] = set()
        self._running = 0
        self._thread = threading.Thread(target=self._main, name="baton-transfer", daemon=True)
        self._thread.start()

    def submit(self, handle: int) -> None:
        """Let the thread run an admitted order."""
        self._wakes.put(handle)

    def retire(self, peer: Peer) -> None:
        """Release a peer that `find` no longer returns, after the running piece at the latest."""
        self._retired.append(peer)
        self._wakes.put(_WAKE)

    def close(self) -> None:
        """Stop after the running piece. The ledger must refuse orders by now."""
        self._wakes.put(_CLOSE)
        self._thread.join()

    def _main(self) -> None:
        try:
            self._loop()
        except BaseException:
            # A bug here must not leave callers waiting: everything ends, and the traceback shows.
            self._ledger.abandon()
            raise

    def _loop(self) -> None:
        backoff_s = _BACKOFF_MIN_S
        handle = _WAKE
        while handle != _CLOSE:
            try:
                handle = self._wakes.get(timeout=backoff_s if self._waiting else None)
            except queue.Empty:
                handle = _WAKE
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
            if handle > 0:
                self._run(handle)
            while self._retired:
                peer = self._retired.popleft()
                self._waiting.discard(peer)
                peer.close()
            if self._waiting and self._is_flush_due() and self._flush_all():
                backoff_s = _BACKOFF_MIN_S

    def _run(self, handle: int) -> None:
        order = self._ledger.start(handle)
        if order is None:
            return
        self._running = handle
        if isinstance(order, DigestOrder):
            self._ledger.finish_running(self._digest(handle, order))
            return
        started = time.perf_counter()
        peer = self._find(order.peer_id, order.peer_epoch)
        if peer is None:
            self._ledger.finish_running(failed(handle, order, PlaneFault.PEER_GONE))
            return
        finished, copy_us = self._move(handle, order, peer)
        if finished.error is not None or order.direction == "read":
            self._ledger.finish_running(finished)
        elif self._ledger.park_running(finished):
            peer.parked.append((handle, time.perf_counter()))
            self._waiting.add(peer)
        if finished.error is None:
            self._meter.observe(finished.nbytes, copy_us, 1e6 * (time.perf_counter() - started))

    def _digest(self, handle: int, order: DigestOrder) -> Finished:
        started = time.perf_counter()
        runs = [(offset, offset, nbytes) for offset, nbytes in order.runs]
        fault = stage_fault(order.stage, len(self.regions))
        if fault:
            return failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault)
        region = self.regions[order.stage]
        fault = fault_in(runs, region.size, region.size)
        if fault:
            return failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault)
        runs = coalesce(runs)
        value = checksum(local_views(region, runs), self._stopped)
        if value is None:
            return failed(handle, order, self._ledger.stop_of(handle) or PlaneFault.CANCELLED)
        duration_us = 1e6 * (time.perf_counter() - started)
        return _succeeded(handle, order, sum(run[2] for run in runs), value, duration_us)

    def _move(self, handle: int, order: PutOrder, peer: Peer) -> tuple[Finished, float]:
        """Copy the runs of a put; return its end, short of the notification, and copy time (us)."""
        fault = stage_fault(order.local_stage, len(self.regions))
        fault = fault or stage_fault(order.remote_stage, peer.num_stages)
        if fault:
            return failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault), 0.0
        region, remote = self.regions[order.local_stage], peer.region(order.remote_stage)
        # Checked before neighbours are joined, so that no negative length hides in a sum.
        fault = fault_in(order.runs, region.size, remote.size)
        if fault:
            return failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault), 0.0
        runs = coalesce(order.runs)
        self.num_orders += 1
        self.num_runs += len(runs)
        sides = local_views(region, runs), remote_views(remote, runs)
        source, destination = sides if order.direction == "write" else (sides[1], sides[0])
        copy_started = time.perf_counter()
        value = copy_and_checksum(destination, source, hashed=self._hashed, stopped=self._stopped)
        if self._pace is not None:
            self._pace(sum(run[2] for run in runs), copy_started, self._stopped)
        copy_us = 1e6 * (time.perf_counter() - copy_started)
        if value is None:
            fault = self._ledger.stop_of(handle) or PlaneFault.CANCELLED
            return failed(handle, order, fault), copy_us
        nbytes = sum(nbytes for _, _, nbytes in runs)
        return _succeeded(handle, order, nbytes, value, copy_us), copy_us

    def _flush(self, peer: Peer) -> bool:
        """Notify `peer` of what is parked, oldest first; True when something could be sent."""
        progress = False
        while peer.parked:
            batch = list(itertools.islice(peer.parked, RECORDS_PER_PACKET))
            handles = [handle for handle, _ in batch]
            try:
                done = self._ledger.notify_parked(handles, peer.sender.try_send)
            except OSError as error:
                self._ledger.fail_parked(handles, PlaneFault.PEER_GONE, str(error))
                done = True
            if not done:
                limit = time.perf_counter() - self._notify_timeout_s
                handles = [handle for handle, moved_at in batch if moved_at < limit]
                if not handles:
                    return progress
                self._ledger.fail_parked(handles, PlaneFault.NOTIFY_TIMEOUT)
            for _ in handles:
                peer.parked.popleft()
            progress = True
        self._waiting.discard(peer)
        return progress

    def _is_flush_due(self) -> bool:
        if not self._ledger.has_queued():
            return True
        oldest = min(peer.parked[0][1] for peer in self._waiting)
        return time.perf_counter() - oldest > _HOLD_S

    def _flush_all(self) -> bool:
        progress = False
        for peer in list(self._waiting):
            progress |= self._flush(peer)
        return progress

    def _stopped(self) -> bool:
        return self._ledger.stop_of(self._running) is not None


def _succeeded(handle: int, order: Order, nbytes: int, value: int, duration_us: float) -> Finished:
    return Finished(
        handle=handle,
        reservation_id=order.reservation_id,
        chunk_id=order.chunk_id,
        nbytes=nbytes,
        checksum=value,
        duration_us=round(duration_us),
    )
