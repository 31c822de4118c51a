"""Handoffs between two network namespaces: bytes really cross, and the cable goes away again."""

import os
import shutil
import subprocess

import pytest

from baton.bench.network.__main__ import render
from baton.bench.network.measure import measure_network
from baton.bench.network.namespaces import cable
from baton.bench.payload import MIB
from baton.errors import ConfigError
from baton.runtime.dataplane.nixl import is_installed

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None,
    reason="network namespaces need root and iproute2",
)
needs_nixl = pytest.mark.skipif(
    not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
)


def _spaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines() if str(os.getpid()) in line}


@needs_root
def test_the_cable_is_removed_whatever_happens():
    def interrupted() -> None:
        with cable() as (here, there):
            assert {here.name, there.name} == _spaces()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert _spaces() == set()


def test_without_the_command_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="iproute2"), cable():
        pass


@needs_root
@needs_nixl
@pytest.mark.slow
def test_a_handoff_between_namespaces_is_measured_beside_raw_nixl():
    (row,) = measure_network(checksum=True, num_rounds=1, sizes=(4 * MIB,))
    assert row.ours_gbps > 0 and row.raw_gbps > 0
    assert row.ratio == pytest.approx(row.raw_gbps / row.ours_gbps)
    assert "4        on" in render([row])
