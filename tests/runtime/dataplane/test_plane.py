"""Puts, reads, digests and their ends, between two planes of one process."""

import asyncio
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baton.errors import LocalProtocolError, RemoteProtocolError
from baton.runtime.dataplane import Arena, DigestOrder, Finished, PlaneFault, Received
from baton.runtime.dataplane.checksum import checksum

from .harness import KIB, MIB, open_plane, order

RANDOM = np.random.default_rng(0)


def _fill(arena: Arena) -> None:
    arena.buffer[:] = RANDOM.integers(0, 256, arena.nbytes, dtype=np.uint8)


@st.composite
def scattered(draw):
    """Runs whose destinations do not overlap, in any order, with local offsets at will."""
    cuts = sorted(draw(st.sets(st.integers(0, 255), min_size=2, max_size=12)))
    slots = list(zip(cuts[:-1:2], cuts[1::2], strict=False))
    runs = []
    for start, end in draw(st.permutations(slots)):
        nbytes = draw(st.integers(1, (end - start) * 511))
        runs.append((draw(st.integers(0, 4 * MIB - nbytes)), start * 511, nbytes))
    return runs


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(runs=scattered(), chunk_id=st.integers(0, (1 << 64) - 1))
def test_random_runs_arrive_with_their_checksum(pair, runs, chunk_id):
    source, destination = pair
    _fill(source.arena)
    destination.arena.buffer[: 256 * 511] = 0
    source.plane.put(order(destination.descriptor, runs, chunk_id=chunk_id))
    (sent,) = source.take(1)
    (received,) = destination.take(1)
    local = [source.arena.buffer[at : at + n] for at, _, n in runs]
    remote = [destination.arena.buffer[at : at + n] for _, at, n in runs]
    assert all(np.array_equal(a, b) for a, b in zip(local, remote, strict=True))
    assert sent.error is None
    assert isinstance(received, Received)
    assert (received.source_id, received.source_epoch) == ("source", 1)
    assert received.checksum == sent.checksum == checksum(local)
    assert received.nbytes == sent.nbytes == sum(n for _, _, n in runs)
    assert received.chunk_id == chunk_id
    written = sum(n for _, _, n in runs)
    assert np.count_nonzero(destination.arena.buffer[: 256 * 511]) <= written


def test_a_read_pulls_and_notifies_nobody(pair):
    source, destination = pair
    _fill(source.arena)
    runs = ((64 * KIB, 0, 2 * MIB),)
    handle = destination.plane.put(order(source.descriptor, runs, direction="read"))
    (done,) = destination.take(1)
    assert done.handle == handle
    assert done.checksum == checksum([source.arena.buffer[: 2 * MIB]])
    pulled = destination.arena.buffer[64 * KIB : 64 * KIB + 2 * MIB]
    assert np.array_equal(pulled, source.arena.buffer[: 2 * MIB])
    assert source.plane.poll() == []


def test_a_digest_verifies_in_place(pair):
    source, _ = pair
    _fill(source.arena)
    source.plane.digest(DigestOrder(reservation_id=1, chunk_id=9, runs=((8, 100), (4096, 50))))
    (done,) = source.take(1)
    buffer = source.arena.buffer
    assert done.checksum == checksum([buffer[8:108], buffer[4096:4146]])
    assert done.nbytes == 150


def test_an_empty_write_is_a_bare_notification(pair):
    source, destination = pair
    source.plane.put(order(destination.descriptor, (), chunk_id=5))
    (received,) = destination.take(1)
    assert (received.chunk_id, received.nbytes) == (5, 0)


@pytest.mark.parametrize("direction", ["write", "read"])
@pytest.mark.parametrize(
    "run",
    [
        (4 * MIB - 8, 0, 16),
        (0, 4 * MIB - 8, 16),
        (-16, 0, 16),
        (0, -16, 16),
        (0, 0, -1),
        (1 << 63, 1 << 63, 1 << 63),
    ],
)
def test_a_run_out_of_bounds_moves_nothing(pair, direction, run):
    source, destination = pair
    source.arena.buffer[:] = 1
    destination.arena.buffer[:] = 2
    runs = ((0, 0, 4096), run)
    source.plane.put(order(destination.descriptor, runs, direction=direction))
    (done,) = source.take(1)
    assert done.error is PlaneFault.OUT_OF_BOUNDS
    assert "region" in done.detail or "negative" in done.detail
    assert (source.arena.buffer == 1).all()
    assert (destination.arena.buffer == 2).all()
    assert destination.plane.poll() == []


def test_a_digest_out_of_bounds_is_an_error(pair):
    source, _ = pair
    source.plane.digest(DigestOrder(reservation_id=1, chunk_id=1, runs=((4 * MIB - 1, 2),)))
    assert source.take(1)[0].error is PlaneFault.OUT_OF_BOUNDS


def test_offsets_count_from_the_registered_part(workers, kind):
    source = workers("source")
    arena, plane = Arena.create("part", 64 * KIB), open_plane(kind)
    try:
        peer = plane.register(arena, offset=16 * KIB, nbytes=16 * KIB)
        source.plane.connect(peer)
        source.arena.buffer[:] = 3
        source.plane.put(order(peer, ((0, 0, 16 * KIB),), chunk_id=0))
        source.plane.put(order(peer, ((0, 1, 16 * KIB),), chunk_id=1))
        ends = sorted(source.take(2), key=lambda end: end.chunk_id)
        assert [end.error for end in ends] == [None, PlaneFault.OUT_OF_BOUNDS]
        assert np.flatnonzero(arena.buffer).tolist() == list(range(16 * KIB, 32 * KIB))
    finally:
        plane.close()
        arena.close()


def test_misuse_is_refused(pair, workers):
    source, destination = pair
    with pytest.raises(LocalProtocolError, match="64-bit"):
        source.plane.put(order(destination.descriptor, (), chunk_id=-1))
    with pytest.raises(LocalProtocolError, match="already"):
        source.plane.register(source.arena)
    with pytest.raises(RemoteProtocolError, match="older"):
        source.plane.connect(workers("destination", epoch=0).descriptor)
    stranger = workers("stranger")
    source.plane.put(order(stranger.descriptor, ((0, 0, 1),)))
    assert source.take(1)[0].error is PlaneFault.PEER_GONE


def test_without_checksums_only_the_bytes_move(workers):
    source, destination = workers("source", checksum=False), workers("destination")
    source.plane.connect(destination.descriptor)
    destination.plane.connect(source.descriptor)
    _fill(source.arena)
    source.plane.put(order(destination.descriptor, ((0, 0, MIB),)))
    assert destination.take(1)[0].checksum == 0
    assert np.array_equal(destination.arena.buffer[:MIB], source.arena.buffer[:MIB])


async def test_the_doorbell_wakes_an_event_loop(pair):
    source, destination = pair
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    got = []

    def on_ready() -> None:
        got.extend(destination.plane.poll())
        if got:
            arrived.set()

    loop.add_reader(destination.plane.fileno(), on_ready)
    try:
        source.plane.put(order(destination.descriptor, ((0, 0, MIB),)))
        await asyncio.wait_for(arrived.wait(), 5)
    finally:
        loop.remove_reader(destination.plane.fileno())
    assert isinstance(got[0], Received)


def test_idle_costs_no_cpu(pair, kind):
    if kind == "nixl":
        time.sleep(0.1)  # until it expects nothing any more
    for worker in pair:
        worker.plane.poll()
    before = time.process_time()
    time.sleep(0.5)
    # NIXL has nothing to wait on, so its thread looks by itself: 3 % of a core at most.
    assert time.process_time() - before < (0.5 * len(pair) * 0.03 if kind == "nixl" else 0.02)


@pytest.mark.slow
def test_other_threads_run_during_a_large_put(workers):
    source, destination = workers("source", 64 * MIB), workers("destination", 64 * MIB)
    source.plane.connect(destination.descriptor)
    ticks, stop = [], threading.Event()

    def count() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)

    counter = threading.Thread(target=count)
    counter.start()
    started = time.perf_counter()
    source.plane.put(order(destination.descriptor, ((0, 0, 64 * MIB),)))
    (done,) = source.take(1)
    ended = time.perf_counter()
    stop.set()
    counter.join()
    assert done.error is None
    during = [tick for tick in ticks if started < tick < ended]
    assert len(during) > 10
    # With the lock held, the counter would stand still for nearly all of the put.
    assert max(np.diff(during)) < 0.7 * (ended - started)


def test_rates_are_calibrated_and_learn(pair):
    source, destination = pair
    started = time.perf_counter()
    rates = source.plane.calibrate()
    assert time.perf_counter() - started < 0.5
    assert 100 < rates.bytes_per_us < 100_000
    assert 0 < rates.overhead_us < 5_000
    for chunk in range(8):
        source.plane.put(order(destination.descriptor, ((0, 0, MIB),), chunk_id=chunk))
    ends = source.wait(lambda seen: len(seen) == 8)
    assert all(isinstance(end, Finished) and end.error is None for end in ends)
    assert source.plane.rates() != rates


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_thread_ends_every_order(pair):
    source, destination = pair
    source.plane.put(order(destination.descriptor, (("no", "such", "run"),)))
    (broken,) = source.take(1)
    assert broken.error is PlaneFault.CLOSED
    source.plane.put(order(destination.descriptor, ((0, 0, 64),), chunk_id=2))
    (late,) = source.take(1)
    assert late.error is PlaneFault.CLOSED
