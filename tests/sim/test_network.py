"""The modelled network keeps a lane's order, except for the faults that are asked of it."""

import pytest

from baton.core.ids import Fence
from baton.core.messages import DoneAck, Envelope
from baton.sim.faults import Clog, MessageFault, Partition
from baton.sim.network import Network
from baton.sim.plan import Hardware, Plan
from baton.sim.timeline import Timeline


class Wire:
    """A network between two processes, and what came out of it."""

    def __init__(self, *counted, jitter_us=0, **plan):
        hardware = Hardware(control_us=100, control_jitter_us=jitter_us)
        self.plan = Plan(counted=counted, replayed=True, hardware=hardware, **plan)
        self.timeline = Timeline()
        self.arrived: list[tuple[int, int]] = []
        self.applied = []
        self.life = 1
        self.network = Network(
            self.plan, self.timeline, self._take, self.applied, lambda process: self.life
        )

    def _take(self, receiver, envelope):
        self.arrived.append((self.timeline.now_us, envelope.message.fence.attempt))

    def send(self, number: int) -> None:
        fence = Fence(
            tenant_id="",
            request_id="r",
            generation=1,
            attempt=number,
            source_id="a",
            source_epoch=1,
            destination_id="b",
            destination_epoch=1,
        )
        envelope = Envelope(sender_id="a", sender_epoch=1, message=DoneAck(fence=fence))
        self.network.send("b", envelope)

    def order(self) -> list[int]:
        self.timeline.run_until(10**9)
        return [number for _, number in self.arrived]


def fault(number: int, kind: str, delay_us: int = 0) -> MessageFault:
    return MessageFault(lane="a>b", number=number, kind=kind, delay_us=delay_us)


def test_a_calm_lane_keeps_its_order_whatever_the_jitter():
    wire = Wire(jitter_us=5000)
    for number in range(50):
        wire.send(number)
    assert wire.order() == list(range(50))
    assert len({at_us for at_us, _ in wire.arrived}) > 1


def test_a_tampered_lane_keeps_its_order_but_for_what_is_delayed():
    wire = Wire(jitter_us=5000)
    wire.network.tamper = lambda receiver, envelope: (
        20_000 if envelope.message.fence.attempt == 3 else 0,
    )
    for number in range(20):
        wire.send(number)
    assert wire.order() == [*range(3), *range(4, 20), 3]


@pytest.mark.parametrize(
    ("hit", "expected"),
    [
        (fault(2, "drop"), [0, 2]),
        (fault(2, "duplicate", 10), [0, 1, 2, 1]),
        (fault(1, "reorder", 10), [1, 2, 0]),
    ],
)
def test_a_listed_fault_hits_its_message_only(hit, expected):
    wire = Wire(hit)
    for number in range(3):
        wire.send(number)
    assert wire.order() == expected
    assert wire.applied == [hit]


def test_a_partition_loses_and_a_clog_delays():
    wire = Wire()
    wire.network.block(Partition(at_us=0, between=("b", "a"), duration_us=1000))
    wire.send(0)
    assert wire.network.is_partitioned("a", "b")
    wire.timeline.run_until(2000)
    assert not wire.network.is_partitioned("a", "b")
    wire.network.block(Clog(at_us=2000, between=("a", "b"), duration_us=1000))
    wire.send(1)
    wire.send(2)
    assert wire.order() == [1, 2]
    assert wire.arrived[0][0] == 3000


def test_healing_ends_every_fault_and_releases_what_was_held_up():
    wire = Wire(fault(2, "drop"))
    wire.network.block(Clog(at_us=0, between=("a", "b"), duration_us=10**8))
    wire.send(0)
    wire.network.heal()
    wire.send(1)
    assert wire.order() == [0, 1]


def test_a_message_to_a_dead_life_does_not_reach_the_next_one():
    wire = Wire()
    wire.send(0)
    wire.life = 2
    wire.send(1)
    assert wire.order() == [1]
