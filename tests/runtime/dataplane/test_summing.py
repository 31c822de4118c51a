"""Sums taken on a thread of their own: once each, and every order that needs one still ends."""

import threading
import time

import numpy as np
import pytest
import xxhash

from baton.runtime.dataplane import DigestOrder, Finished, PlaneFault, PutOrder, Quiesced, Received
from baton.runtime.dataplane.ledger import Ledger
from baton.runtime.dataplane.nixl import is_installed, summing
from baton.runtime.dataplane.nixl.summing import WORTH_NBYTES, Sum, SummingThread

from .harness import MIB, Worker

NBYTES = 2 * WORTH_NBYTES
needs_nixl = pytest.mark.skipif(
    not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
)


def _memory(nbytes: int):
    return np.random.default_rng(5).integers(0, 256, nbytes, dtype=np.uint8)


def _order(runs=((0, NBYTES),), reservation_id=1, stage=0) -> DigestOrder:
    return DigestOrder(reservation_id=reservation_id, chunk_id=0, runs=runs, stage=stage)


@pytest.fixture
def side():
    ledger = Ledger(16)
    thread = SummingThread(ledger, hashed=True)
    thread.regions = [_memory(NBYTES)]
    yield ledger, thread
    thread.close()
    ledger.close_doorbell()


def _ends(ledger: Ledger, count: int):
    until_s = time.monotonic() + 5
    seen = []
    while len(seen) < count:
        assert time.monotonic() < until_s, seen
        seen += ledger.take()
        time.sleep(0.001)
    return seen


class Gate:
    """Holds every sum before its first piece."""

    def __init__(self, monkeypatch) -> None:
        self.reached, self.opened, self.count = threading.Event(), threading.Event(), 0
        self._taken = summing.checksum
        monkeypatch.setattr(summing, "checksum", self._held)

    def _held(self, views, *stopped):
        self.count += 1
        self.reached.set()
        assert self.opened.wait(5)
        return self._taken(views, *stopped)


def test_a_sum_is_taken_once_whoever_comes_first(monkeypatch):
    memory = _memory(NBYTES)
    gate = Gate(monkeypatch)
    found = Sum([memory[:100], memory[100:]])
    other = threading.Thread(target=found.take)
    other.start()
    assert gate.reached.wait(5)
    late = []
    waiting = threading.Thread(target=lambda: late.append(found.result()))
    waiting.start()
    assert not late
    gate.opened.set()
    other.join()
    waiting.join()
    assert late == [xxhash.xxh3_64_intdigest(memory.data)]
    assert found.result() == late[0]
    assert gate.count == 1


def test_a_sum_that_nobody_has_begun_is_taken_by_who_needs_it():
    memory = _memory(1000)
    assert Sum([memory]).result() == xxhash.xxh3_64_intdigest(memory.data)


def test_a_digest_ends_with_its_sum_however_long_it_is(side):
    ledger, thread = side
    for nbytes in (1000, NBYTES):
        thread.digest(ledger.admit(_order(runs=((0, nbytes),))))
        (end,) = _ends(ledger, 1)
        assert end.error is None
        assert end.nbytes == nbytes
        assert end.checksum == xxhash.xxh3_64_intdigest(thread.regions[0][:nbytes].data)


def test_a_digest_beyond_the_own_memory_is_refused(side):
    ledger, thread = side
    for order in (_order(runs=((1, NBYTES),)), _order(stage=1)):
        thread.digest(ledger.admit(order))
        (end,) = _ends(ledger, 1)
        assert (end.error, end.nbytes, end.checksum) == (PlaneFault.OUT_OF_BOUNDS, 0, 0)


def test_a_cancel_stops_what_is_being_summed_and_is_answered(side, monkeypatch):
    ledger, thread = side
    gate = Gate(monkeypatch)
    thread.digest(ledger.admit(_order(reservation_id=7)))
    assert gate.reached.wait(5)
    ledger.cancel(7)
    assert ledger.take() == [], "it is not quiet while its bytes are read"
    gate.opened.set()
    end, quiet = _ends(ledger, 2)
    assert isinstance(end, Finished)
    assert (end.error, end.nbytes) == (PlaneFault.CANCELLED, 0)
    assert quiet == Quiesced(reservation_id=7)


def test_a_fault_of_the_thread_ends_every_order(side, monkeypatch):
    ledger, thread = side

    def broken(views, *stopped):
        raise MemoryError

    monkeypatch.setattr(summing, "checksum", broken)
    monkeypatch.setattr(threading, "excepthook", lambda fault: None)
    thread.digest(ledger.admit(_order()))
    (end,) = _ends(ledger, 1)
    assert end.error is PlaneFault.CLOSED


@needs_nixl
@pytest.mark.parametrize("direction", ["write", "read"])
def test_a_row_of_chunks_arrives_with_the_sums_of_each(direction):
    here, there = (Worker(name, 17 * MIB, kind="nixl", timeout_ms=3000) for name in "ab")
    try:
        here.plane.connect(there.descriptor)
        there.plane.connect(here.descriptor)
        source, target = (here, there) if direction == "write" else (there, here)
        source.arena.buffer[:] = _memory(17 * MIB)
        for chunk in range(4):
            at = chunk * 4 * MIB
            # Two runs that do not adjoin at the other side, and a second order that is short.
            half = 2 * MIB
            runs = ((at, at + half, half), (at + half, at, half))
            here.plane.put(_put(there, direction, 2 * chunk, runs))
            here.plane.put(_put(there, direction, 2 * chunk + 1, _short(chunk)))
        ends = here.take(8)
        expected = {}
        for chunk in range(4):
            at = chunk * 4 * MIB
            first, second = (source.arena.buffer[x : x + 2 * MIB] for x in (at, at + 2 * MIB))
            order = (first, second) if direction == "write" else (second, first)
            expected[2 * chunk] = xxhash.xxh3_64_intdigest(np.concatenate(order).data)
            expected[2 * chunk + 1] = xxhash.xxh3_64_intdigest(
                source.arena.buffer[_short(chunk)[0][0] :][:64]
            )
        assert {end.chunk_id: (end.error, end.checksum) for end in ends} == {
            chunk: (None, value) for chunk, value in expected.items()
        }
        if direction == "write":
            told = [note for note in there.take(8) if isinstance(note, Received)]
            assert {note.chunk_id: note.checksum for note in told} == expected
        assert np.array_equal(target.arena.buffer[12 * MIB : 14 * MIB], second)
    finally:
        here.close()
        there.close()


def _short(chunk: int):
    at = 16 * MIB + 64 * chunk
    return ((at, at, 64),)


def _put(peer: Worker, direction, chunk_id: int, runs) -> PutOrder:
    return PutOrder(
        peer_id=peer.worker_id,
        peer_epoch=1,
        reservation_id=1,
        chunk_id=chunk_id,
        direction=direction,
        runs=runs,
    )
