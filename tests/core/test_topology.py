"""How far apart two workers are, by what they announce."""

import msgspec
import pytest

from baton.core.topology import Topology, topology_of
from tests.stage import Stage, uneven_plan


def info(worker_id: str, endpoint: str):
    stage = Stage(uneven_plan())
    stage.settle(1_000_000)
    known = stage.world.router.fleet.get("decode-1")
    assert known is not None
    return msgspec.structs.replace(known.info, worker_id=worker_id, endpoint=endpoint)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("ipc:///run/p", "ipc:///run/d", Topology.HOST),
        ("tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001", Topology.HOST),
        ("tcp://10.0.0.1:7000", "tcp://10.0.0.11:7000", Topology.NETWORK),
        ("tcp://[fd00::1]:7000", "tcp://[fd00::1]:7001", Topology.HOST),
        ("tcp://[fd00::1]:7000", "tcp://[fd00::2]:7000", Topology.NETWORK),
    ],
)
def test_workers_are_as_far_apart_as_their_addresses(one, other, found):
    assert topology_of(info("p", one), info("d", other)) is found
    assert topology_of(info("d", other), info("p", one)) is found


def test_a_worker_is_no_way_from_itself_and_who_is_gone_is_nowhere():
    assert topology_of(info("d", "tcp://a:1"), info("d", "tcp://a:1")) is Topology.WORKER
    assert topology_of(None, info("d", "ipc:///run/d")) is Topology.UNKNOWN
