"""Orders that end while their bytes may still move: the reservation is quiet when they cannot."""

import pytest

from baton.runtime.dataplane.ledger import Ledger
from baton.runtime.dataplane.plane import Finished, PlaneFault, PutOrder, Quiesced


def _order(chunk_id: int, reservation_id: int = 1) -> PutOrder:
    return PutOrder(
        peer_id="p",
        peer_epoch=1,
        reservation_id=reservation_id,
        chunk_id=chunk_id,
        direction="write",
        runs=((0, 0, 8),),
    )


@pytest.fixture
def ledger():
    ledger = Ledger(8)
    yield ledger
    ledger.close_doorbell()


def _running(ledger: Ledger, *chunk_ids: int) -> list[int]:
    handles = [ledger.admit(_order(chunk_id)) for chunk_id in chunk_ids]
    for handle in handles:
        assert ledger.start(handle) is not None
    return handles


def test_a_lingering_order_ends_at_once_and_keeps_its_reservation_from_being_quiet(ledger):
    (handle,) = _running(ledger, 0)
    ledger.linger(handle, PlaneFault.TIMEOUT)
    (end,) = ledger.take()
    assert (end.handle, end.error) == (handle, PlaneFault.TIMEOUT)
    ledger.cancel(1)
    assert ledger.take() == []
    ledger.settle(handle)
    assert ledger.take() == [Quiesced(reservation_id=1)]


def test_quiet_is_when_the_last_of_several_has_settled(ledger):
    first, second, third = _running(ledger, 0, 1, 2)
    ledger.cancel(1)
    assert [ledger.stop_of(h) for h in (first, second, third)] == [PlaneFault.CANCELLED] * 3
    for handle in (first, second):
        ledger.linger(handle, PlaneFault.CANCELLED)
    ledger.settle(second)
    ledger.finish_running(Finished(handle=third, reservation_id=1, chunk_id=2))
    assert Quiesced(reservation_id=1) not in ledger.take()
    ledger.settle(first)
    assert ledger.take() == [Quiesced(reservation_id=1)]


def test_what_settles_before_a_cancel_holds_nothing_up(ledger):
    (handle,) = _running(ledger, 0)
    ledger.linger(handle, PlaneFault.PEER_GONE)
    ledger.settle(handle)
    ledger.take()
    ledger.cancel(1)
    assert ledger.take() == [Quiesced(reservation_id=1)]


def test_another_reservation_is_quiet_beside_it(ledger):
    (handle,) = _running(ledger, 0)
    ledger.linger(handle, PlaneFault.TIMEOUT)
    ledger.take()
    ledger.cancel(2)
    assert ledger.take() == [Quiesced(reservation_id=2)]
    ledger.settle(handle)
