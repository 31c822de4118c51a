"""What both simulated worker hosts do alike: transfer orders, and performing a node's effects."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from baton.core import effects
from baton.core.effects import DigestChunk, DigestKV, Effect, MoveChunk, TierOrder
from baton.core.events import Event, IoQuiesced
from baton.core.messages import Message
from baton.core.work import Batch

Order = MoveChunk | DigestChunk


class TransferQueue(ABC):
    """One transfer thread: one copy or read-back at a time, cancelled by reservation.

    A cancel drops what is queued; an order that runs is finished, and only then is the reservation
    quiet. `after` sets a timer of this process, `feed` gives its node an event.
    """

    def __init__(
        self, after: Callable[[int, Callable[[], None]], None], feed: Callable[[Event], None]
    ) -> None:
        self._after = after
        self._feed = feed
        self._queue: deque[Order] = deque()
        self._running: Order | None = None
        self._cancelled: set[int] = set()

    @property
    def outstanding(self) -> Counter[int]:
        """Orders queued or running, by reservation."""
        orders = [*self._queue, *([self._running] if self._running else [])]
        return Counter(order.reservation_id for order in orders)

    def submit(self, order: Order) -> None:
        """Queue a copy or a read-back."""
        if order.reservation_id not in self._cancelled:
            self._queue.append(order)
            self._next()

    def cancel(self, reservation_id: int) -> None:
        """Drop queued orders of a reservation; it is quiet when none runs."""
        self._cancelled.add(reservation_id)
        self._queue = deque(o for o in self._queue if o.reservation_id != reservation_id)
        if self._running is None or self._running.reservation_id != reservation_id:
            self._quiesce(reservation_id)

    def _quiesce(self, reservation_id: int) -> None:
        self._after(1, lambda: self._feed(IoQuiesced(reservation_id=reservation_id)))

    def _next(self) -> None:
        if self._running is None and self._queue:
            self._running = self._queue.popleft()
            self._begin(self._running)

    @abstractmethod
    def _begin(self, order: Order) -> None:
        """Work on an order; `_finish` is called when it is over."""

    def _finish(self, order: Order) -> bool:
        """The order is over; False when it was cancelled while it ran."""
        self._running = None
        cancelled = order.reservation_id in self._cancelled
        if cancelled:
            self._quiesce(order.reservation_id)
        self._next()
        return not cancelled


class Computes(Protocol):
    """The engine of a simulated worker."""

    def submit(self, order: Batch | DigestKV) -> None:
        """Queue a batch or a digest."""


class Swaps(Protocol):
    """The lower tiers of a simulated worker."""

    def submit(self, order: TierOrder) -> None:
        """Queue a copy, a drop or a clear."""


def perform(
    effect: Effect,
    send: Callable[[str, Message], None],
    engine: Computes,
    plane: TransferQueue,
    tiers: Swaps,
) -> None:
    """Do what a worker node asks for; traces are for observers, who see them among the effects."""
    match effect:
        case effects.Send(to=to, message=message):
            send(to, message)
        case effects.RunBatch(batch=batch):
            engine.submit(batch)
        case effects.DigestKV():
            engine.submit(effect)
        case effects.MoveChunk() | effects.DigestChunk():
            plane.submit(effect)
        case effects.CancelIo(reservation_id=reservation_id):
            plane.cancel(reservation_id)
        case effects.CopyBlock() | effects.DropBlock() | effects.ClearTiers():
            tiers.submit(effect)
        case effects.Trace():
            pass
        case _:
            raise AssertionError(f"a worker host cannot {type(effect).__name__}")
