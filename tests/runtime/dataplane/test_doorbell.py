"""The datagram that wakes a peer's thread; nothing depends on it but time."""

import socket
import threading
import time

import pytest

from baton.runtime.dataplane import Received
from baton.runtime.dataplane.nixl import agent_thread, is_installed
from baton.runtime.dataplane.nixl.doorbell import Doorbell

from .harness import Worker, order


def test_a_ring_is_heard_and_a_bell_that_is_gone_is_no_fault():
    heard = threading.Event()
    here, there = Doorbell("127.0.0.1", lambda: None), Doorbell("127.0.0.1", heard.set)
    address = there.address
    assert address[0] == "127.0.0.1"
    here.ring(address)
    assert heard.wait(5)
    here.ring(None)
    there.close()
    for _ in range(3):
        here.ring(address)
        time.sleep(0.01)
    again = threading.Event()
    here._on_ring = again.set
    here.ring(here.address)
    assert again.wait(5), "an answer that the port is closed must not deafen it"
    here.close()


def test_only_the_own_address_listens():
    bell = Doorbell("127.0.0.1", lambda: None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", bell.address[1]))  # free, so the bell is not bound to all
    bell.close()
    with pytest.raises(OSError, match=r"."):
        Doorbell("203.0.113.1", lambda: None)


@pytest.mark.skipif(not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'")
def test_a_peer_that_naps_is_woken(monkeypatch):
    monkeypatch.setattr(agent_thread, "_IDLE_NAP_S", 30.0)
    here, there = (Worker(name, kind="nixl", timeout_ms=3000) for name in "ab")
    try:
        here.plane.connect(there.descriptor)
        there.plane.connect(here.descriptor)
        here.arena.buffer[:64] = 7
        time.sleep(0.05)  # both sleep for half a minute now
        here.plane.put(order(there.descriptor, ((0, 0, 64),)))
        (note,) = there.take(1, timeout_s=5)
        assert isinstance(note, Received)
        assert bytes(there.arena.buffer[:64]) == bytes([7] * 64)
    finally:
        here.close()
        there.close()
