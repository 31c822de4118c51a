"""Cancel: what is queued ends at once, what runs ends with its piece, and one Quiesced follows."""

import threading

import pytest

from baton.runtime.dataplane import DigestOrder, Finished, PlaneFault, Quiesced
from baton.runtime.dataplane import transfer as transfer_module
from baton.runtime.dataplane.checksum import copy_and_checksum
from baton.runtime.dataplane.ledger import Ledger

from .harness import KIB, MIB, order


@pytest.fixture
def kind() -> str:
    """The gate is in the thread that copies itself."""
    return "shm"


class Gate:
    """Holds the transfer thread before the piece numbered `hold` of the first put."""

    def __init__(self, monkeypatch, hold: int) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._asked = 0
        self._hold = hold
        monkeypatch.setattr(transfer_module, "copy_and_checksum", self._copy)

    def _copy(self, destinations, sources, *, hashed, stopped):
        def gated() -> bool:
            if self._asked == self._hold:
                self.reached.set()
                assert self.opened.wait(5)
            self._asked += 1
            return stopped()

        return copy_and_checksum(destinations, sources, hashed=hashed, stopped=gated)


def test_cancel_without_orders_quiesces_once(pair):
    source, _ = pair
    source.plane.cancel(4)
    source.plane.cancel(4)
    assert source.plane.poll() == [Quiesced(reservation_id=4)]


def test_cancel_drops_queued_and_stops_running(pair, monkeypatch):
    source, destination = pair
    gate = Gate(monkeypatch, hold=1)
    source.arena.buffer[:] = 9
    peer = destination.descriptor
    for chunk in range(4):
        source.plane.put(order(peer, ((0, 0, 4 * MIB),), chunk_id=chunk, reservation_id=1))
    other = source.plane.put(order(peer, ((0, 0, 64),), chunk_id=7, reservation_id=2))
    assert gate.reached.wait(5)
    source.plane.cancel(1)
    dropped = source.plane.poll()
    assert [end.chunk_id for end in dropped] == [1, 2, 3], "queued ones end before the running one"
    assert {end.error for end in dropped} == {PlaneFault.CANCELLED}
    gate.opened.set()
    running, quiesced, last = source.take(3)
    assert (running.chunk_id, running.error) == (0, PlaneFault.CANCELLED)
    assert quiesced == Quiesced(reservation_id=1)
    assert (last.handle, last.error) == (other, None)
    (received,) = destination.take(1)
    assert received.reservation_id == 2, "nothing is notified for a cancelled reservation"
    assert not destination.arena.buffer[MIB:].any(), "it stopped between two pieces"


def test_orders_after_a_cancel_are_refused(pair):
    source, destination = pair
    source.plane.cancel(1)
    source.plane.put(order(destination.descriptor, ((0, 0, 64),), reservation_id=1))
    source.plane.digest(DigestOrder(reservation_id=1, chunk_id=1, runs=((0, 64),)))
    source.arena.buffer[:] = 1
    quiesced, *ends = source.take(3)
    assert isinstance(quiesced, Quiesced)
    assert [end.error for end in ends] == [PlaneFault.CANCELLED] * 2
    assert not destination.arena.buffer.any()


def test_cancel_between_move_and_notification_sends_nothing(pair):
    """A parked put has moved its bytes, but a cancel still comes before the notification."""
    ledger = Ledger(capacity=4)
    _, destination = pair
    handle = ledger.admit(order(destination.descriptor, ((0, 0, 64),)))
    running = ledger.start(handle)
    assert running is not None
    assert ledger.park_running(Finished(handle=handle, reservation_id=1, chunk_id=1))
    ledger.cancel(1)

    def send(_moved) -> bool:
        pytest.fail("notified after a cancel")

    assert ledger.notify_parked([handle], send)
    end, quiesced = ledger.take()
    assert end.error is PlaneFault.CANCELLED
    assert isinstance(quiesced, Quiesced)
    ledger.close_doorbell()


def test_peer_loss_does_not_swallow_a_quiesced(pair, monkeypatch):
    source, destination = pair
    gate = Gate(monkeypatch, hold=1)
    source.plane.put(order(destination.descriptor, ((0, 0, 4 * MIB),)))
    assert gate.reached.wait(5)
    source.plane.cancel(1)
    source.plane.disconnect("destination", 1)
    gate.opened.set()
    end, quiesced = source.take(2)
    assert end.error is not None
    assert quiesced == Quiesced(reservation_id=1)


def test_close_ends_every_order(workers, monkeypatch):
    source, destination = workers("source"), workers("destination")
    source.plane.connect(destination.descriptor)
    gate = Gate(monkeypatch, hold=0)
    for chunk in range(3):
        source.plane.put(order(destination.descriptor, ((0, 0, 64 * KIB),), chunk_id=chunk))
    assert gate.reached.wait(5)
    threading.Timer(0.05, gate.opened.set).start()
    source.plane.close()
    ends = source.plane.poll()
    assert sorted(end.chunk_id for end in ends) == [0, 1, 2]
    assert {end.error for end in ends} == {PlaneFault.CLOSED}
