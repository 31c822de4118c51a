"""The interface that owns an address is found by any of its addresses, loopback by all of its."""

import subprocess

import pytest

from baton.errors import ConfigError
from baton.runtime.dataplane.nixl.interface import interface_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.3", "localhost", "::1"])
def test_every_loopback_address_is_that_of_lo(host):
    assert interface_of(host) == "lo"


def test_a_second_address_of_an_interface_is_found():
    pair = ["ip", "link", "add", "batonif0", "type", "veth", "peer", "name", "batonif1"]
    try:
        made = subprocess.run(pair, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("the ip command is not installed: no interface can be added")
    if made.returncode:
        pytest.skip(f"no interface can be added here: {made.stderr.strip()}")
    try:
        for address in ("198.18.7.1/24", "198.18.8.1/24"):
            subprocess.run(["ip", "addr", "add", address, "dev", "batonif0"], check=True)
        assert interface_of("198.18.7.1") == interface_of("198.18.8.1") == "batonif0"
    finally:
        subprocess.run(["ip", "link", "del", "batonif0"], check=True)


def test_an_address_of_another_host_is_refused_with_those_of_this_one():
    with pytest.raises(ConfigError, match=r"'192.0.2.9' is an address of no interface.* 127.0.0.1"):
        interface_of("192.0.2.9")
    with pytest.raises(ConfigError, match=r"'no.such.host.invalid' is no address"):
        interface_of("no.such.host.invalid")
