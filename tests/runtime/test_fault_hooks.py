"""The faults that a chaos run injects do what they say, in order, and are counted."""

import asyncio
import select
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from baton.config import BatonConfig
from baton.core.messages import PeerDown
from baton.runtime.channel import ipc_endpoint
from baton.runtime.dataplane import Arena, DigestOrder, Finished, PutOrder, Received, ShmDataPlane
from baton.runtime.diary import read_diary
from baton.runtime.faults import FaultSpec, FaultyChannel, FaultyPlane, open_channel, open_plane

SECONDS = 5.0
NUM_MESSAGES = 200
NBYTES = 1 << 16


@pytest.fixture
def channel(tmp_path) -> Iterator[Callable[..., FaultyChannel]]:
    made = []

    def make(name: str, **faults) -> FaultyChannel:
        spec = FaultSpec(seed=4, **faults)
        made.append(FaultyChannel(name, 1, ipc_endpoint(tmp_path, name), faults=spec))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def sent(a: FaultyChannel, b: FaultyChannel) -> list[int]:
    """Send numbers from a to b, slowly enough that delays end, and return what came."""
    a.connect("b", b.endpoint)
    for number in range(NUM_MESSAGES):
        a.send("b", PeerDown(worker_id="w", epoch=number))
        if number % 20 == 0:
            await asyncio.sleep(0.002)
    got = []
    expected = NUM_MESSAGES - a.counters["injected_drops"] + a.counters["injected_duplicates"]
    async with asyncio.timeout(SECONDS):
        while len(got) < expected:
            got.append((await b.receive()).message.epoch)
    return got


async def test_messages_are_lost_repeated_and_delayed_but_never_reordered(channel):
    a, b = channel("a", drop=0.1, duplicate=0.1, delay=0.1, delay_ms=5), channel("b")
    got = await sent(a, b)
    assert got == sorted(got)
    lost, repeated = NUM_MESSAGES - len(set(got)), len(got) - len(set(got))
    assert lost == a.counters["injected_drops"] > 5
    assert repeated == a.counters["injected_duplicates"] > 5
    assert a.counters["injected_delays"] > 2


async def test_what_is_delayed_for_a_dead_life_never_reaches_the_next(channel):
    a, old, new = channel("a", delay=1.0, delay_ms=50), channel("b"), channel("c")
    a.connect("b", old.endpoint)
    a.send("b", PeerDown(worker_id="w", epoch=1))
    a.connect("b", new.endpoint)
    a.send("b", PeerDown(worker_id="w", epoch=2))
    assert (await asyncio.wait_for(new.receive(), SECONDS)).message.epoch == 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(new.receive(), 0.1)


async def test_faults_happen_while_their_gate_is_there(channel, tmp_path):
    gate = tmp_path / "gate"
    a, b = channel("a", drop=1.0, gate=str(gate)), channel("b")
    assert await sent(a, b) == list(range(NUM_MESSAGES))
    assert not a.counters
    gate.touch()
    assert await sent(a, b) == []
    assert a.counters == {"injected_drops": NUM_MESSAGES}


def test_a_landed_chunk_is_changed_before_it_is_read_back():
    arenas = [Arena.create(name, NBYTES, epoch=1) for name in ("source", "destination")]
    source = ShmDataPlane()
    destination = FaultyPlane(ShmDataPlane(), faults=FaultSpec(flip=1.0), place="destination 1")
    try:
        here, there = source.register(arenas[0]), destination.register(arenas[1])
        source.connect(there)
        destination.connect(here)
        arenas[0].buffer[:] = np.arange(NBYTES, dtype=np.uint8)
        runs = ((0, 64, 1000), (2000, 4096, 500))
        source.put(
            PutOrder(
                peer_id="destination",
                peer_epoch=1,
                reservation_id=9,
                chunk_id=2,
                direction="write",
                runs=runs,
            )
        )
        (arrived,) = _take(destination, Received)
        order = DigestOrder(reservation_id=9, chunk_id=2, runs=((64, 1000), (4096, 500)))
        destination.digest(order)
        (read_back,) = _take(destination, Finished)
        assert read_back.checksum != arrived.checksum
        changed = sum(
            int(np.count_nonzero(arenas[1].buffer[to : to + n] != arenas[0].buffer[at : at + n]))
            for at, to, n in runs
        )
        assert changed == destination.num_flips == 1
        destination.digest(order)
        (again,) = _take(destination, Finished)
        assert again.checksum == read_back.checksum, "one arrival, one flip"
    finally:
        for plane in (source, destination):
            plane.close()
        for arena in arenas:
            arena.close()


def _take(plane: ShmDataPlane, kind: type) -> list:
    for _ in range(50):
        select.select([plane.fileno()], [], [], 0.1)
        found = [completion for completion in plane.poll() if isinstance(completion, kind)]
        if found:
            return found
    raise AssertionError("nothing came")


async def test_without_a_fault_spec_there_is_no_hook(tmp_path):
    plain = open_channel("a", 1, ipc_endpoint(tmp_path, "a"), None, None)
    plane = open_plane(BatonConfig(), None, "a 1")
    assert type(plain).__name__ == "ControlChannel" and type(plane) is ShmDataPlane
    plain.close()
    plane.close()


def test_a_slow_link_takes_its_time_and_a_diary_says_so(tmp_path):
    link, diary = tmp_path / "link", tmp_path / "diary"
    arenas = [Arena.create(name, NBYTES, epoch=1) for name in ("source", "destination")]
    spec = FaultSpec(link=str(link), diary=str(diary))
    source = open_plane(BatonConfig(), spec, "source 1")
    destination = ShmDataPlane()
    order = PutOrder(
        peer_id="destination",
        peer_epoch=1,
        reservation_id=3,
        chunk_id=0,
        direction="write",
        runs=((0, 0, NBYTES),),
    )
    try:
        here, there = source.register(arenas[0]), destination.register(arenas[1])
        source.connect(there)
        destination.connect(here)
        source.put(order)
        (free,) = _take(source, Finished)
        link.write_text(str(NBYTES / 0.05))
        source.put(order)
        (slow,) = _take(source, Finished)
        assert free.duration_us < 50_000 <= slow.duration_us < 500_000
        link.write_text("1")
        source.put(order)
        source.cancel(3)
        assert _take(source, Finished)[0].error, "a stop ends the wait of hours"
    finally:
        for plane in (source, destination):
            plane.close()
        for arena in arenas:
            arena.close()
    lines = read_diary(diary)
    assert [line.what for line in lines] == ["put", "moved", "put", "moved", "put"]
    assert [line.nbytes for line in lines] == [NBYTES] * 5
    assert lines[3].duration_us == slow.duration_us
    assert lines == sorted(lines, key=lambda line: line.at_us)
