"""Which orders are queued, running or parked, so that every handle ends exactly once.

One lock guards it all. Decisions that must not interleave with a cancel (start, notify, finish)
are made under it; bytes are moved outside of it.
"""

import itertools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from baton.errors import LocalProtocolError
from baton.runtime.dataplane.plane import (
    Completion,
    DigestOrder,
    Finished,
    PlaneFault,
    PutOrder,
    Quiesced,
)

Order = PutOrder | DigestOrder
REMEMBERED_CANCELS = 65_536
"""Cancelled reservations whose late orders are still refused; the oldest is forgotten first."""
_ID_LIMIT = 1 << 64
_QUIET_COMPLETIONS_MAX = 8
"""While more orders are queued, the poller is woken for every so many ends: on a shared core each
wake costs a switch in the middle of the stream. The last end of a burst always rings."""


class Ledger:
    """State of the orders of one plane with one transfer thread; holds at most `capacity`."""

    def __init__(self, capacity: int) -> None:
        self.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable once `take` should be called."""
        self.stop: PlaneFault | None = None
        """Set while the running order has to end early; read between pieces without the lock."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._queued: dict[int, Order] = {}
        self._parked: dict[int, tuple[Order, Finished]] = {}
        self._running: tuple[int, Order] | None = None
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._quiesce_running = False
        self._closed = False
        self._completions: deque[Completion] = deque()
        self._rung = False

    def admit(self, order: Order) -> int:
        """Queue `order` and return its handle; one of a cancelled reservation ends at once."""
        for value in (order.reservation_id, order.chunk_id):
            if not 0 <= value < _ID_LIMIT:
                raise LocalProtocolError(f"{value} is not an unsigned 64-bit id")
        with self._lock:
            if len(self._queued) + len(self._parked) >= self._capacity:
                raise LocalProtocolError(f"more than {self._capacity} orders are outstanding")
            handle = next(self._handles)
            if self._closed:
                self._end(handle, order, PlaneFault.CLOSED)
            elif order.reservation_id in self._cancelled:
                self._end(handle, order, PlaneFault.CANCELLED)
            else:
                self._queued[handle] = order
            return handle

    def start(self, handle: int) -> Order | None:
        """Make a queued order the running one; None when it has ended meanwhile."""
        with self._lock:
            assert self._running is None, "one transfer thread runs one order"
            order = self._queued.pop(handle, None)
            if order is not None:
                self._running = (handle, order)
                self.stop = None
            return order

    def park_running(self, finished: Finished) -> bool:
        """Set the moved order aside until its notification is sent; False when it was stopped."""
        with self._lock:
            assert self._running is not None
            handle, order = self._running
            if self.stop is not None:
                self._end_running(failed(handle, order, self.stop))
                return False
            self._running = None
            self._parked[handle] = (order, finished)
            if not self._queued:
                self._ring()
            return True

    def finish_running(self, finished: Finished) -> None:
        """End the running order; a stop that arrived too late to matter leaves it successful."""
        with self._lock:
            self._end_running(finished)

    def notify_parked(self, handles: Sequence[int], send: Callable[[list[Finished]], bool]) -> bool:
        """Call `send`, which must not block, for those of `handles` that are still parked.

        They succeed once it returns True. The call is under the lock, so nothing is sent for an
        order after its cancel. Returns whether all `handles` have ended.
        """
        with self._lock:
            moved = [self._parked[handle][1] for handle in handles if handle in self._parked]
            if moved and not send(moved):
                return False
            for finished in moved:
                del self._parked[finished.handle]
                self._report(finished)
            return True

    def fail_parked(self, handles: Sequence[int], fault: PlaneFault, detail: str = "") -> None:
        """End those of `handles` that are still parked without a notification."""
        with self._lock:
            for handle in handles:
                if handle in self._parked:
                    order, _ = self._parked.pop(handle)
                    self._report(failed(handle, order, fault, detail))

    def has_queued(self) -> bool:
        """True when another order follows."""
        return bool(self._queued)

    def cancel(self, reservation_id: int) -> None:
        """Drop the orders of a reservation and report `Quiesced`, at the latest when it stops."""
        with self._lock:
            if reservation_id in self._cancelled:
                return
            self._cancelled[reservation_id] = None
            if len(self._cancelled) > REMEMBERED_CANCELS:
                self._cancelled.popitem(last=False)
            running = self._drop(
                lambda order: order.reservation_id == reservation_id, PlaneFault.CANCELLED
            )
            if running:
                self._quiesce_running = True
            else:
                self._report(Quiesced(reservation_id=reservation_id))

    def fail_peer(self, worker_id: str, epoch: int) -> None:
        """End every order to one life of a peer."""
        with self._lock:
            self._drop(
                lambda order: (
                    isinstance(order, PutOrder)
                    and (order.peer_id, order.peer_epoch) == (worker_id, epoch)
                ),
                PlaneFault.PEER_GONE,
            )

    def close(self) -> None:
        """End every order and refuse new ones."""
        with self._lock:
            self._closed = True
            self._drop(lambda order: True, PlaneFault.CLOSED)

    def abandon(self) -> None:
        """Close, and end the running order as well: the thread that ran it is gone."""
        self.close()
        with self._lock:
            if self._running is not None:
                self._end_running(failed(*self._running, PlaneFault.CLOSED))
            self._ring()

    def take(self) -> list[Completion]:
        """Return and forget the completions reported so far."""
        with self._lock:
            if self._rung and self.doorbell >= 0:
                os.eventfd_read(self.doorbell)
            self._rung = False
            taken = list(self._completions)
            self._completions.clear()
            return taken

    def close_doorbell(self) -> None:
        """Give the descriptor back, once nothing polls or runs any more."""
        with self._lock:
            doorbell, self.doorbell = self.doorbell, -1
        os.close(doorbell)

    def _drop(self, matches: Callable[[Order], bool], fault: PlaneFault) -> bool:
        """End what is queued or parked and matches; stop and return True if it is running."""
        for handle in [handle for handle, order in self._queued.items() if matches(order)]:
            self._end(handle, self._queued.pop(handle), fault)
        for handle in [handle for handle, (order, _) in self._parked.items() if matches(order)]:
            self._end(handle, self._parked.pop(handle)[0], fault)
        self._ring()
        if self._running is None or not matches(self._running[1]):
            return False
        self.stop = self.stop or fault
        return True

    def _end_running(self, finished: Finished) -> None:
        assert self._running is not None
        assert self._running[0] == finished.handle
        self._running = None
        self._report(finished)
        if self._quiesce_running:
            self._quiesce_running = False
            self._report(Quiesced(reservation_id=finished.reservation_id))
        self.stop = None

    def _end(self, handle: int, order: Order, fault: PlaneFault) -> None:
        self._report(failed(handle, order, fault))

    def _report(self, completion: Completion) -> None:
        self._completions.append(completion)
        if not self._queued or len(self._completions) >= _QUIET_COMPLETIONS_MAX:
            self._ring()

    def _ring(self) -> None:
        if self._completions and not self._rung and self.doorbell >= 0:
            self._rung = True
            os.eventfd_write(self.doorbell, 1)


def failed(handle: int, order: Order, fault: PlaneFault, detail: str = "") -> Finished:
    """The end of an order that did not succeed."""
    return Finished(
        handle=handle,
        reservation_id=order.reservation_id,
        chunk_id=order.chunk_id,
        error=fault,
        detail=detail,
    )
