"""Which workers stand on one node, by knob and by plan, and what a refusal names."""

import pytest

from baton.config import load_config
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.policy.worker_placement import Need, NodeRoom, place_workers, shortage
from baton.runtime.ray.needs import needs_of

MIB = 1 << 20


def needs(prefill: int, decode: int, cpus: int = 1, gpus: int = 0) -> list[Need]:
    roles = (Role.PREFILL,) * prefill + (Role.DECODE,) * decode
    return [
        Need(worker_id=f"{role}-{at}", role=role, cpus=cpus, gpus=gpus, memory_nbytes=512 * MIB)
        for at, role in enumerate(roles)
    ]


def groups(placement):
    return [bundle.workers for bundle in placement.bundles]


@pytest.mark.parametrize(("word", "spreading"), [("pack", "PACK"), ("spread", "SPREAD")])
def test_each_worker_is_a_group_of_its_own(word, spreading):
    placed = place_workers(needs(1, 2), word)
    assert groups(placed) == [("prefill-0",), ("decode-1",), ("decode-2",)]
    assert placed.spreading == spreading and placed.bundle_of("decode-2") == 2


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        (2, 2, [("prefill-0", "decode-2"), ("prefill-1", "decode-3")]),
        (3, 1, [("prefill-0", "prefill-1", "prefill-2", "decode-3")]),
        (
            2,
            3,
            [("prefill-0", "decode-2", "decode-4"), ("prefill-1", "decode-3")],
        ),
    ],
)
def test_pairs_hold_a_prefill_worker_and_its_share_of_decode_workers(prefill, decode, expected):
    placed = place_workers(needs(prefill, decode, cpus=2), "pair")
    assert groups(placed) == expected and placed.spreading == "SPREAD"
    assert [one.cpus for one in placed.bundles] == [2 * len(group) for group in expected]
    assert placed.bundles[0].memory_nbytes == 512 * MIB * len(expected[0])


def test_a_pipeline_is_one_worker_so_a_pair_holds_every_stage_of_both():
    config = load_config(
        None,
        [
            "cluster.prefill=2",
            "cluster.decode=2",
            "cluster.prefill_pp=3",
            "cluster.decode_pp=2",
            "worker.threads=2",
        ],
    )
    placed = place_workers(needs_of(config), "pair")
    assert groups(placed) == [("prefill-0", "decode-2"), ("prefill-1", "decode-3")]
    # Stages take turns on the cores of their worker, and its K/V is cut over them, not added.
    kv_nbytes = config.kv_nbytes_of(Role.PREFILL) + config.kv_nbytes_of(Role.DECODE)
    assert [(one.cpus, one.memory_nbytes) for one in placed.bundles] == [(4, kv_nbytes)] * 2


def test_a_plan_names_the_node_of_each_worker():
    placed = place_workers(needs(2, 2), "pack", nodes=[0, 1, 1, 0])
    assert groups(placed) == [("prefill-0", "decode-3"), ("prefill-1", "decode-2")]
    assert placed.spreading == "STRICT_SPREAD"
    with pytest.raises(ConfigError, match=r"cluster\.nodes: 3 nodes for 4 workers"):
        place_workers(needs(2, 2), "pack", nodes=[0, 1, 1])


def test_shared_memory_keeps_everybody_on_one_node():
    placed = place_workers(needs(2, 2), "pair", one_host=True)
    assert groups(placed) == [("prefill-0", "prefill-1", "decode-2", "decode-3")]
    with pytest.raises(ConfigError, match=r"cluster\.placement=spread .*data_plane=nixl"):
        place_workers(needs(1, 1), "spread", one_host=True)
    with pytest.raises(ConfigError, match=r"cluster\.nodes \[0, 1\] .*data_plane=nixl"):
        place_workers(needs(1, 1), "pack", nodes=[0, 1], one_host=True)


def test_a_shortage_names_who_what_and_what_is_free():
    rooms = [
        NodeRoom(name="10.0.0.1", cpus=1, memory_nbytes=4096 * MIB),
        NodeRoom(name="10.0.0.2", cpus=1, memory_nbytes=256 * MIB),
    ]
    found = shortage(place_workers(needs(1, 1), "spread"), rooms)
    assert found == (
        "decode-1 needs 1 CPU and 512 MiB of memory on one node; free is 10.0.0.1 0 CPU and "
        "3.5 GiB of memory; 10.0.0.2 1 CPU and 256 MiB of memory"
    )
    assert "2 CPU, 2 GPU" in shortage(place_workers(needs(1, 1, gpus=1), "pair"), rooms)
    assert "no node at all" in shortage(place_workers(needs(1, 1), "pack"), [])


def test_groups_of_a_plan_do_not_share_a_node():
    roomy = NodeRoom(name="a", cpus=8, memory_nbytes=1 << 40)
    placed = place_workers(needs(1, 1), "pack", nodes=[0, 1])
    assert "that holds no other group" in shortage(placed, [roomy])
    other = NodeRoom(name="b", cpus=1, memory_nbytes=1 << 40)
    assert shortage(placed, [roomy, other]) == ""
    assert shortage(place_workers(needs(1, 1), "pack"), [roomy]) == ""
