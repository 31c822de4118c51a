"""NIXL cannot stop a transfer: what a frozen or dead peer may still do, and what is said of it."""

import os
import time

import pytest

from baton.runtime.dataplane import PlaneFault, Quiesced
from baton.runtime.dataplane.nixl import is_installed

from .harness import MIB, order
from .puppet import Puppet

pytestmark = pytest.mark.skipif(
    not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
)
NBYTES = 16 * MIB
NUM_ORDERS = 64
"""A gigabyte: more than tcp moves before the kill."""


@pytest.fixture
def puppets(monkeypatch):
    """A reader and the owner of what it reads, over tcp, where both sides must help a transfer."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    reader, owner = (Puppet(name, timeout_ms=400) for name in ("reader", "owner"))
    reader.connect(owner)
    owner.connect(reader)
    owner.fill(7)
    reader.put(order(owner.descriptor, ((0, 0, MIB),), direction="read", reservation_id=9))
    assert reader.take(1)[0].error is None, "wired up"
    assert reader.lanes() == {"tcp": 1}, "the lane that was taken is known"
    reader.fill(0)
    yield reader, owner
    for puppet in (reader, owner):
        puppet.kill()


def _read(reader: Puppet, owner: Puppet) -> None:
    reader.put(order(owner.descriptor, ((0, 0, NBYTES),), direction="read"))


def test_a_late_write_after_a_timeout_lands_before_the_reservation_is_quiet(puppets):
    reader, owner = puppets
    owner.freeze()
    _read(reader, owner)
    (end,) = reader.take(1)
    assert end.error is PlaneFault.TIMEOUT
    reader.cancel(1)
    assert reader.take(1, 0.5) == [], "not quiet while the owner may still send"
    before = reader.count(7)
    owner.thaw()
    assert reader.take(1) == [Quiesced(reservation_id=1)]
    landed = reader.count(7)
    assert landed > before, "the late write is real: without quarantine it would corrupt"
    reader.fill(3)
    time.sleep(0.5)
    assert reader.count(3) == 32 * MIB, "quiet means that no byte changes any more"


def test_a_peer_that_is_given_up_while_it_moves_is_waited_for(puppets):
    reader, owner = puppets
    owner.freeze()
    _read(reader, owner)
    assert reader.take(1, 0.1) == []
    reader.disconnect(owner)
    (end,) = reader.take(1)
    assert end.error is PlaneFault.PEER_GONE
    reader.cancel(1)
    assert reader.take(1, 0.5) == []
    owner.kill()
    assert reader.take(1) == [Quiesced(reservation_id=1)]
    reader.fill(3)
    time.sleep(0.2)
    assert reader.count(3) == 32 * MIB


def _until_severed(puppet: Puppet, other: Puppet) -> None:
    until_s = time.monotonic() + 5
    while not puppet.sever(other):
        assert time.monotonic() < until_s, "the broken connection was never seen"
        time.sleep(0.02)


def test_what_the_dead_have_posted_is_over_once_the_connection_is_known_to_be_broken(puppets):
    reader, owner = puppets
    reader.freeze()  # the buffers of both kernels fill
    owner.put(order(reader.descriptor, ((0, 0, NBYTES),), direction="write"))
    time.sleep(0.2)
    owner.kill()
    reader.thaw()
    assert not reader.sever(owner), "still connected"
    reader.disconnect(owner)
    assert not reader.sever(owner), "the death alone proves nothing"
    _until_severed(reader, owner)
    reader.fill(3)
    time.sleep(0.3)
    assert reader.count(3) == 32 * MIB, "nothing lands any more"
    assert reader.sever(owner)


def test_a_peer_that_hangs_is_not_severed_and_one_that_was_never_used_is(puppets):
    reader, owner = puppets
    owner.freeze()
    reader.disconnect(owner)
    for _ in range(20):
        assert not reader.sever(owner), "its connection stands"
        time.sleep(0.02)
    owner.kill()
    _until_severed(reader, owner)
    unused = Puppet("unused", timeout_ms=400)
    reader.connect(unused)
    unused.connect(reader)
    unused.kill()
    reader.disconnect(unused)
    _until_severed(reader, unused)


def test_the_connection_of_a_dead_life_goes_without_another_question(puppets):
    reader, owner = puppets
    before = len(os.listdir(f"/proc/{reader.process.pid}/fd"))
    owner.kill()
    reader.disconnect(owner)
    reader.sever(owner)
    until_s = time.monotonic() + 5
    while len(os.listdir(f"/proc/{reader.process.pid}/fd")) >= before:
        assert time.monotonic() < until_s, "its connection stays"
        time.sleep(0.02)


def test_a_life_that_was_let_go_of_can_be_met_again(puppets):
    reader, owner = puppets
    reader.disconnect(owner)
    assert not reader.sever(owner)
    reader.connect(owner)
    reader.put(order(owner.descriptor, ((0, 0, MIB),), direction="read", reservation_id=10))
    assert reader.take(1)[0].error is None
    assert reader.count(7) == MIB


@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_peer_killed_mid_transfer_is_an_error_and_then_quiet(puppets, direction):
    reader, owner = puppets
    for chunk in range(NUM_ORDERS):
        reader.put(order(owner.descriptor, ((0, 0, NBYTES),), direction=direction, chunk_id=chunk))
    time.sleep(0.08)
    owner.kill()
    ends = reader.take(NUM_ORDERS)
    assert len(ends) == NUM_ORDERS and {ends[-1].error, ends[-2].error} == {PlaneFault.PEER_GONE}
    reader.cancel(1)
    assert reader.take(1) == [Quiesced(reservation_id=1)]
