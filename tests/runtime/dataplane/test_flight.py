"""One order cut into pieces, over an engine whose every step the test takes."""

import numpy as np
import pytest
import xxhash

from baton.runtime.dataplane.nixl.flight import PIECE_NBYTES, Flight
from baton.runtime.dataplane.plane import NixlRegion, PutOrder

NBYTES = 3 * PIECE_NBYTES


class SteppedPost:
    """Moves its bytes when it is told to, and not before; `fails` in place of that."""

    def __init__(self, target, source, runs) -> None:
        self._move = (target, source, runs)
        self.landed = False
        self.fails = False

    def land(self) -> None:
        target, source, runs = self._move
        for to, start, nbytes in runs:
            target[to : to + nbytes] = source[start : start + nbytes]
        self.landed = True

    @property
    def is_done(self) -> bool:
        if self.fails:
            raise RuntimeError("the peer has gone")
        return self.landed


class SteppedEngine:
    """Takes posts between two arrays; the addresses are those of the arrays."""

    def __init__(self, local, remote) -> None:
        self.local, self.remote = local, remote
        self.posts: list[SteppedPost] = []

    def post(self, operation, local_base, remote_base, runs, peer):
        assert (local_base, remote_base) == (self.local.ctypes.data, self.remote.ctypes.data)
        if operation == "write":
            post = SteppedPost(self.remote, self.local, [(b, a, n) for a, b, n in runs])
        else:
            post = SteppedPost(self.local, self.remote, runs)
        self.posts.append(post)
        return post


def _flight(direction: str) -> tuple[Flight, SteppedEngine]:
    random = np.random.default_rng(1)
    local, remote = (random.integers(0, 256, NBYTES, dtype=np.uint8) for _ in range(2))
    region = NixlRegion(
        worker_id="d",
        epoch=1,
        host="h",
        agent="a",
        address=remote.ctypes.data,
        nbytes=NBYTES,
        metadata=b"",
        token=b"",
    )
    order = PutOrder(
        peer_id="d",
        peer_epoch=1,
        reservation_id=1,
        chunk_id=0,
        direction=direction,
        runs=((0, 0, NBYTES),),
    )
    return Flight(1, order, local, region, hashed=True), SteppedEngine(local, remote)


def _fly(flight: Flight, engine: SteppedEngine) -> None:
    while not flight.advance(engine, may_post=True):
        engine.posts[-1].land()


@pytest.mark.parametrize("direction", ["write", "read"])
def test_one_piece_is_under_way_at_a_time_and_all_bytes_arrive(direction):
    flight, engine = _flight(direction)
    _fly(flight, engine)
    assert len(engine.posts) == 3
    assert np.array_equal(engine.local, engine.remote)
    finished = flight.finished()
    assert finished.nbytes == NBYTES
    assert finished.checksum == xxhash.xxh3_64_intdigest(engine.local.data)


def test_a_stop_keeps_further_pieces_back_and_waits_for_the_one_that_is_posted():
    flight, engine = _flight("write")
    assert not flight.advance(engine, may_post=True)
    assert not flight.advance(engine, may_post=False), "its bytes may still move"
    engine.posts[0].land()
    assert flight.advance(engine, may_post=False)
    assert len(engine.posts) == 1 and not flight.is_under_way


def test_a_write_is_summed_before_its_piece_is_posted():
    """What is overwritten while it moves must differ from its sum at the destination."""
    flight, engine = _flight("write")
    before = xxhash.xxh3_64_intdigest(engine.local.data)
    assert not flight.advance(engine, may_post=True)
    engine.local[0] ^= 1
    engine.posts[0].land()
    _fly(flight, engine)
    assert flight.finished().checksum == before != xxhash.xxh3_64_intdigest(engine.remote.data)


def test_a_read_is_summed_as_it_landed():
    flight, engine = _flight("read")
    assert not flight.advance(engine, may_post=True)
    engine.remote[0] ^= 1
    engine.posts[0].land()
    _fly(flight, engine)
    assert flight.finished().checksum == xxhash.xxh3_64_intdigest(engine.local.data)


def test_a_piece_that_failed_moves_no_more():
    flight, engine = _flight("write")
    assert not flight.advance(engine, may_post=True)
    engine.posts[0].fails = True
    with pytest.raises(RuntimeError):
        flight.advance(engine, may_post=True)
    assert not flight.is_under_way
