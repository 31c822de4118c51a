"""Leases: renewed in both directions, bounded in both directions, and no wall clock in them."""

import pytest

from baton.core.messages import Prefill, Renew
from baton.sim.clock import Clock
from baton.sim.faults import Partition
from tests.stage import Stage

DIRECTIONS = ("push", "pull")
SLOW = 5_000
"""A prompt of forty tokens takes five leases of a second."""


def expired(stage: Stage) -> dict[str, int]:
    workers = stage.world.workers.items()
    found = {name: worker.node.counters["expired_leases"] for name, worker in workers}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("num_requests", [1, 24])
def test_renewal_wired_in_one_direction(direction, num_requests):
    """However long the compute and however many the transfers, a live pair keeps its leases."""
    options = {"blocks": 512, "batch": 64, "lease": 1_000}
    stage = Stage(direction=direction, **options)
    stage.source.slowness = SLOW if num_requests == 1 else SLOW // 8
    for number in range(num_requests):
        stage.submit(f"r{number}", prompt=40, first=number, max_tokens=2)
    start_us = stage.now_us
    stage.finish_right()
    assert stage.now_us - start_us > 3_000_000
    assert expired(stage) == {}
    assert not stage.traced("attempt_failed")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("silent", "side"), [("prefill-0", "decode-1"), ("decode-1", "prefill-0")])
def test_lease_of_a_side_that_is_not_renewed(direction, silent, side):
    """Each direction has its own lease: the side that hears nothing lets go, and says so."""
    stage = Stage(direction=direction)
    stage.lose = lambda n, sender, r, message: sender == silent and isinstance(message, Renew)
    stage.source.slowness = SLOW
    stage.submit(prompt=40)
    stage.until(lambda: expired(stage))
    assert expired(stage) == {side: 1}
    stage.source.slowness = 1
    stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lease_of_a_pair_that_cannot_hear_each_other(direction):
    """From whichever moment on: both let go within two leases, nothing stays, the text is right."""
    calm = Stage(direction=direction)
    calm.submit()
    calm.finish_right()
    for number in range(len(calm.sent)):
        stage = Stage(direction=direction)
        stage.submit()
        stage.until(lambda stage=stage, n=number: len(stage.sent) > n)
        fault = Partition(
            at_us=stage.now_us, between=("prefill-0", "decode-1"), duration_us=2_500_000
        )
        stage.world.strike(fault)
        stage.run_for(2_000_000)
        assert not stage.source.node.source.leases
        assert not stage.destination.node.destination.leases
        stage.finish_right()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("drift_ppm", [-200, 200])
def test_expiry_by_a_clock_that_differs(direction, drift_ppm):
    """Clocks hours apart that run at different speeds change nothing: times travel as durations."""
    stage = Stage(direction=direction, prefill=1, decode=1)
    calm = Stage(direction=direction)
    clocks = {"prefill-0": Clock(offset_us=10**10, drift_ppm=drift_ppm), "router": Clock()}
    for name, worker in stage.world.workers.items():
        worker.clock = clocks.get(name, Clock(offset_us=5, drift_ppm=-drift_ppm))
    for each in (stage, calm):
        each.source.slowness = SLOW
        each.submit(prompt=40)
        each.finish_right()
        assert expired(each) == {}
        assert not each.traced("attempt_failed")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_renewal_of_another_generation_extends_nothing(direction):
    """The words of an old attempt, said again and again, keep no new one alive."""
    stage = Stage(direction=direction, prefill=2)
    stage.hit_batch(stage.source)
    stage.submit(prompt=40)
    stage.until(lambda: stage.traced("attempt_failed"))
    (old,) = [message.fence for message in stage.kinds(Prefill)]
    stage.lose = lambda n, sender, r, m: sender == "prefill-1" and isinstance(m, Renew)
    stage.worker("prefill-1").slowness = SLOW
    stage.until(lambda: len(stage.traced("prefill_started")) == 2)
    for _ in range(30):
        stage.source._send("decode-2", Renew(fences=(old,)))
        stage.run_for(50_000)
    assert expired(stage) == {"decode-2": 1}
    stage.worker("prefill-1").slowness = 1
    stage.finish_right()
