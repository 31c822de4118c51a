"""Which orders are queued, running or parked, so that every handle ends exactly once.

One lock guards it all. Decisions that must not interleave with a cancel (start, notify, finish)
are made under it; bytes are moved outside of it. Where an engine cannot be stopped, an order may
end while its bytes still move: it lingers, and its reservation is not quiet before it has settled.
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
    Received,
)

Order = PutOrder | DigestOrder
REMEMBERED_CANCELS = 65_536
"""Cancelled reservations whose late orders are still refused; the oldest is forgotten first."""
_ID_LIMIT = 1 << 64
_QUIET_COMPLETIONS_MAX = 8
"""While more orders are queued, the poller is woken for every so many ends: on a shared core each
wake costs a switch in the middle of the stream. The last end of a burst always rings."""


class Ledger:
    """State of the orders of one plane with one transfer thread; holds at most `capacity`.

    The thread may run several orders at once, where an engine moves them while it looks on.
    """

    def __init__(self, capacity: int) -> None:
        self.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable once `take` should be called."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._queued: dict[int, Order] = {}
        self._parked: dict[int, tuple[Order, Finished]] = {}
        self._running: dict[int, Order] = {}
        self._stops: dict[int, PlaneFault] = {}
        """Running orders that have to end early, and why."""
        self._lingering: dict[int, int] = {}
        """Ended orders whose bytes may still move, with their reservations."""
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._quiescing: set[int] = set()
        """Cancelled reservations that are not quiet yet."""
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
        """Make a queued order a running one; None when it has ended meanwhile."""
        with self._lock:
            order = self._queued.pop(handle, None)
            if order is not None:
                self._running[handle] = order
            return order

    def peek(self, handle: int) -> Order | None:
        """A queued order, without starting it."""
        return self._queued.get(handle)

    def stop_of(self, handle: int) -> PlaneFault | None:
        """Why a running order has to end early, if it has; asked between pieces, without a lock."""
        return self._stops.get(handle)

    def park_running(self, finished: Finished) -> bool:
        """Set the moved order aside until its notification is sent; False when it was stopped."""
        with self._lock:
            stop = self._stops.get(finished.handle)
            if stop is not None:
                self._end_running(failed(finished.handle, self._running[finished.handle], stop))
                return False
            self._parked[finished.handle] = (self._running.pop(finished.handle), finished)
            if not self._queued:
                self._ring()
            return True

    def finish_running(self, finished: Finished) -> None:
        """End a running order; a stop that arrived too late to matter leaves it successful."""
        with self._lock:
            self._end_running(finished)

    def linger(self, handle: int, fault: PlaneFault, detail: str = "") -> None:
        """End a running order whose bytes may still move; `settle` follows when they cannot."""
        with self._lock:
            order = self._running.pop(handle)
            self._stops.pop(handle, None)
            self._lingering[handle] = order.reservation_id
            self._report(failed(handle, order, fault, detail))

    def settle(self, handle: int) -> None:
        """Nothing of a lingering order moves any more."""
        with self._lock:
            self._try_quiesce(self._lingering.pop(handle))

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
            self._drop(lambda order: order.reservation_id == reservation_id, PlaneFault.CANCELLED)
            self._quiescing.add(reservation_id)
            self._try_quiesce(reservation_id)

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
        """Close, and end the running orders as well: the thread that ran them is gone."""
        self.close()
        with self._lock:
            for handle, order in list(self._running.items()):
                self._end_running(failed(handle, order, PlaneFault.CLOSED))
            self._ring()

    def receive(self, received: Sequence[Received]) -> None:
        """Report chunks that peers have written here."""
        with self._lock:
            self._completions.extend(received)
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

    def _drop(self, matches: Callable[[Order], bool], fault: PlaneFault) -> None:
        """End what is queued or parked and matches; stop what is running."""
        for handle in [handle for handle, order in self._queued.items() if matches(order)]:
            self._end(handle, self._queued.pop(handle), fault)
        for handle in [handle for handle, (order, _) in self._parked.items() if matches(order)]:
            self._end(handle, self._parked.pop(handle)[0], fault)
        self._ring()
        for handle, order in self._running.items():
            if matches(order):
                self._stops.setdefault(handle, fault)

    def _end_running(self, finished: Finished) -> None:
        del self._running[finished.handle]
        self._stops.pop(finished.handle, None)
        self._report(finished)
        self._try_quiesce(finished.reservation_id)

    def _try_quiesce(self, reservation_id: int) -> None:
        if reservation_id not in self._quiescing or reservation_id in self._lingering.values():
            return
        if any(order.reservation_id == reservation_id for order in self._running.values()):
            return
        self._quiescing.remove(reservation_id)
        self._report(Quiesced(reservation_id=reservation_id))

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
