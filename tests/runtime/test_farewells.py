"""A node hears that a peer has ended only once the peer's bytes have, and is told until then."""

import asyncio

from baton.core.events import Received
from baton.core.messages import Envelope, PeerDown
from baton.runtime.farewells import Farewells


class Wire:
    """A plane on which the dead are severed when the test says so."""

    def __init__(self) -> None:
        self.broken = False
        self.let_go: list[tuple[str, int]] = []
        self.asked = 0

    def disconnect(self, worker_id: str, epoch: int) -> None:
        self.let_go.append((worker_id, epoch))

    def sever(self, worker_id: str, epoch: int) -> bool:
        self.asked += 1
        return self.broken


def down(*, ended: bool) -> Envelope:
    message = PeerDown(worker_id="w0", epoch=3, ended=ended)
    return Envelope(sender_id="router", sender_epoch=0, message=message)


async def test_a_dead_peer_counts_as_given_up_until_its_connection_is_broken():
    wire, told = Wire(), []
    farewells = Farewells(wire, asyncio.get_running_loop(), told.append)
    envelope = down(ended=True)
    for _ in range(3):  # the router repeats itself
        assert farewells.on_down(envelope, envelope.message) == down(ended=False)
    await asyncio.sleep(0.1)
    assert told == [] and wire.asked > 4
    wire.broken = True
    await asyncio.sleep(0.1)
    assert told == [Received(envelope=envelope)], "once"
    assert farewells.on_down(envelope, envelope.message) is envelope
    assert set(wire.let_go) == {("w0", 3)}


async def test_of_a_peer_that_is_given_up_nothing_is_asked():
    wire, told = Wire(), []
    farewells = Farewells(wire, asyncio.get_running_loop(), told.append)
    envelope = down(ended=False)
    assert farewells.on_down(envelope, envelope.message) is envelope
    await asyncio.sleep(0.05)
    assert (wire.asked, told, wire.let_go) == (0, [], [("w0", 3)])
