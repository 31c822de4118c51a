"""Specification 0x06A to 0x06E: the production state machines in virtual time, to the millisecond.

A serial link moves one chunk in 10 ms, a serial device copy takes 10 ms more, validation and
publication take 2 ms each. Nothing here decides: when a chunk may go is the source's decision, when
its credit returns is the destination's, and when the entry may be published is the gate's.
"""

import heapq
from dataclasses import dataclass, field

import pytest

from baton.core.ids import Schedule
from baton.protocol.destination import Arrival
from baton.protocol.directory import Directory, PublishOutcome
from tests.protocol import handoff
from tests.protocol.handoff import GRANT, KIB, checksum, replace

LINK_MS, COPY_MS, VALIDATE_MS, PUBLISH_MS = 10, 10, 2, 2
READY = [26, 46, 66, 86]


@dataclass
class Run:
    """One handoff, and when its chunks passed each event."""

    ready: list[int]
    window: int = 2 * KIB
    schedule: Schedule = Schedule.LAYER
    acquired: list[int] = field(default_factory=list)
    send_start: list[int] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)
    layer_of_send: list[tuple[int, int]] = field(default_factory=list)
    inflight: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        grant = replace(GRANT, credit_nbytes=self.window, schedule=self.schedule)
        self.source = handoff.source_transfer(grant)
        self.destination = handoff.destination_transfer(grant)
        self.link_free = self.copy_free = 0
        self.queue: list[tuple[int, int, int, str, int]] = []
        self.num_events = 0
        for layer, at in enumerate(self.ready):
            self.push(at, "ready", layer)

    def push(self, at: int, kind: str, number: int) -> None:
        """In flight is acquire <= t < return, so within one instant credit returns first."""
        self.num_events += 1
        order = ("visible", "received", "ready").index(kind)
        heapq.heappush(self.queue, (at, order, self.num_events, kind, number))

    def run(self, until: int = 1000) -> "Run":
        """Perform everything that happens up to and including `until`."""
        while self.queue and self.queue[0][0] <= until:
            now = self.queue[0][0]
            while self.queue and self.queue[0][0] == now:
                *_, kind, number = heapq.heappop(self.queue)
                getattr(self, f"on_{kind}")(now, number)
            self.send(now)
            self.inflight.append(self.source.credits.inflight_nbytes)
        return self

    def on_ready(self, now: int, layer: int) -> None:
        self.source.mark_ready(layer, GRANT.num_tokens)
        if layer == len(self.ready) - 1:
            self.source.mark_complete()

    def send(self, now: int) -> None:
        for spec in self.source.take_ready():
            start = max(now, self.link_free)
            self.link_free = start + LINK_MS
            self.acquired.append(now)
            self.send_start.append(start)
            self.layer_of_send.append((spec.layer_start, start))
            self.push(self.link_free, "received", spec.chunk_id)

    def on_received(self, now: int, chunk_id: int) -> None:
        arrival = self.destination.arrive(chunk_id, KIB, checksum(chunk_id))
        assert arrival is Arrival.NEW
        self.source.summed(chunk_id, checksum(chunk_id))
        self.copy_free = max(now, self.copy_free) + COPY_MS
        self.push(self.copy_free, "visible", chunk_id)

    def on_visible(self, now: int, chunk_id: int) -> None:
        self.destination.see(chunk_id, checksum(chunk_id))
        self.visible.append(now)
        assert self.source.visible(chunk_id), "credit returns once, at DEVICE_VISIBLE"


def test_fixture_timeline():
    run = Run(READY).run()
    assert run.visible == [46, 56, 66, 76, 86, 96, 106, 116]
    assert run.acquired == [26, 26, 46, 56, 66, 76, 86, 96]
    assert run.send_start == [26, 36, 46, 56, 66, 76, 86, 96]
    assert run.source.credits.peak_nbytes == 2048
    assert run.source.credits.inflight_nbytes == 0


def test_validated_at_118_and_published_at_120():
    run = Run(READY).run()
    destination, directory = run.destination, Directory()
    destination.manifest = handoff.seal(run.source)
    assert destination.all_visible and destination.defect() == ""
    validated = run.visible[-1] + VALIDATE_MS
    destination.validate()
    assert directory.publish(destination.entry()) is PublishOutcome.PUBLISHED
    destination.published()
    assert (validated, validated + PUBLISH_MS) == (118, 120)


@pytest.mark.parametrize(
    ("window", "last_visible", "peak"),
    [(1 * KIB, 186, 1024), (2 * KIB, 116, 2048), (8 * KIB, 116, 3072)],
)
def test_credit_window_bounds_what_is_in_flight(window, last_visible, peak):
    run = Run(READY, window=window).run()
    assert run.visible[-1] == last_visible
    assert run.source.credits.peak_nbytes == peak == max(run.inflight)
    assert min(run.inflight) >= 0 and max(run.inflight) <= window


@pytest.mark.parametrize(
    ("schedule", "ready"), [(Schedule.REQUEST, READY), (Schedule.LAYER, [86] * 4)]
)
def test_without_overlap_the_last_chunk_is_visible_at_176(schedule, ready):
    run = Run(ready, schedule=schedule).run()
    assert run.send_start[0] == 86
    assert run.visible[-1] == 176


@pytest.mark.parametrize("ready", [[20, 42, 64, 86], [11, 36, 61, 86]])
def test_other_ready_times_that_fit_the_published_figures(ready):
    assert Run(ready).run().visible[-1] == 116


def test_no_chunk_leaves_before_its_own_layer_is_ready():
    run = Run(READY, window=8 * KIB).run()
    assert all(start >= READY[layer] for layer, start in run.layer_of_send)
    assert len(run.layer_of_send) == 8


def test_layer_3_cannot_be_sent_at_85():
    source = handoff.source_transfer(replace(GRANT, credit_nbytes=64 * KIB))
    for layer in range(3):
        source.mark_ready(layer, GRANT.num_tokens)
    assert {spec.layer_start for spec in source.take_ready()} == {0, 1, 2}
    source.mark_ready(3, GRANT.num_tokens - 1)  # all but the last row
    assert [spec.block_start for spec in source.take_ready()] == [0], "block 1 is not complete"
    source.mark_ready(3, GRANT.num_tokens)
    assert [spec.layer_start for spec in source.take_ready()] == [3]


def test_publication_at_115_is_impossible():
    run = Run(READY).run(until=115)
    destination = run.destination
    destination.manifest = handoff.seal(run.source)
    assert len(run.visible) == 7 and not destination.all_visible
    for step in (destination.defect, destination.validate):
        with pytest.raises(AssertionError):
            step()
    assert destination.state == "TRANSFERRING"


def test_received_is_not_visible_and_returns_no_credit():
    run = Run([0, 0, 0, 0]).run(until=LINK_MS)
    assert run.destination.arrive(run.source.plan[0].chunk_id, KIB, checksum(0)) is (
        Arrival.DUPLICATE
    ), "the first chunk is RECEIVED"
    assert run.destination.num_visible == 0
    assert run.source.take_ready() == []
    assert run.source.credits.inflight_nbytes == run.window
