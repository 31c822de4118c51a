"""Phase goodputs, replicas, topology and residency of specification 0x08C and 0x08D."""

import pytest

from baton.core.layout import KVLayout
from baton.errors import ConfigError
from baton.hardware.parallel import Parallel
from baton.planner.placement.cluster import Cluster
from baton.planner.placement.packing import (
    CannotPlace,
    Instances,
    pack_free,
    pack_paired,
)
from baton.planner.placement.paths import path_loads, payload_bytes_per_s, whole_path
from baton.planner.placement.phases import (
    PhaseCandidate,
    best_per_gpu,
    phase_goodput,
    plan_for_rate,
    plans_for_gpus,
)
from baton.planner.placement.residency import residency

MIB, GIB = 2**20, 2**30
TTFT_MS, TPOT_MS, SHARE = 250, 100, 0.9


def samples(passes, target_ms):
    """Ten latencies at each rate of the grid, so many of them within the target."""
    grid = {}
    for rate, num in passes.items():
        grid[rate] = [target_ms - i for i in range(num)] + [target_ms + 1] * (10 - num)
    return grid


def goodput(latencies_ms, target_ms):
    attained = [
        (rate, sum(one <= target_ms for one in ten) / len(ten))
        for rate, ten in latencies_ms.items()
    ]
    return phase_goodput(attained, SHARE)


TWO_STAGES = Parallel(tp=1, pp=2)
PREFILL = samples({4: 10, 6: 10, 8: 9, 10: 8}, TTFT_MS)
DECODE = samples({8: 10, 10: 10, 12: 9, 14: 7}, TPOT_MS)
WIDE_PREFILL = samples({8: 10, 10: 10, 12: 9, 14: 6}, TTFT_MS)
"""TP 4: faster for one request, and 12/s on twice the GPUs."""


def chosen():
    prefill = [
        PhaseCandidate(parallel=Parallel(tp=4), goodput_per_s=goodput(WIDE_PREFILL, TTFT_MS)),
        PhaseCandidate(parallel=TWO_STAGES, goodput_per_s=goodput(PREFILL, TTFT_MS)),
    ]
    decode = [PhaseCandidate(parallel=TWO_STAGES, goodput_per_s=goodput(DECODE, TPOT_MS))]
    return prefill, decode, plan_for_rate(prefill, decode, 10.0)


def test_phase_goodputs_of_the_fixture():
    prefill, decode, _ = chosen()
    assert [one.goodput_per_s for one in prefill] == [12, 8]
    assert decode[0].goodput_per_s == 12


def test_goodput_per_gpu_decides_and_not_the_latency_of_one_request():
    prefill, _, plan = chosen()
    assert [one.per_gpu for one in prefill] == [3, 4]
    assert plan.prefill.parallel == TWO_STAGES


def test_replicas_capacity_and_the_denominator_at_ten_requests_a_second():
    _, _, plan = chosen()
    assert (plan.num_prefill, plan.num_decode) == (2, 1)
    assert [one.goodput_per_s for one in plan.capacities] == [16, 12]
    assert (plan.goodput_per_s, plan.num_gpus, plan.per_gpu) == (12, 6, 2)


def test_three_copies_are_resident():
    _, _, plan = chosen()
    held = residency(
        plan,
        copy_nbytes=132 * GIB,
        token_nbytes=MIB // 4,
        prefill_kv_tokens=4096,
        decode_kv_tokens=8192,
    )
    assert held.weight_nbytes == 396 * GIB
    assert held.kv_nbytes == (2 * 4096 + 8192) * MIB // 4


def test_payload_demand_against_paths():
    layout = KVLayout(
        num_layers=64,
        num_kv_heads=8,
        head_dim=128,
        block_size=16,
        dtype_k="float16",
        dtype_v="float16",
    )
    request_nbytes = 256 * layout.bytes_per_token
    assert request_nbytes == 64 * MIB
    assert payload_bytes_per_s(12, request_nbytes) == 768 * MIB
    for capacity, feasible in ((4 * GIB, True), (256 * MIB, False), (768 * MIB, True)):
        assert whole_path(12, request_nbytes, capacity).is_feasible == feasible


def fixture_instances(plan):
    return (
        Instances(letter="p", parallel=plan.prefill.parallel, num=plan.num_prefill),
        Instances(letter="d", parallel=plan.decode.parallel, num=plan.num_decode),
    )


def cluster(node_bytes_per_s=256.0 * MIB, num_nodes=2):
    return Cluster(
        num_nodes=num_nodes,
        gpus_per_node=4,
        inner_bytes_per_s=8.0 * GIB,
        node_bytes_per_s=node_bytes_per_s,
    )


def test_stages_of_both_phases_share_a_node():
    _, _, plan = chosen()
    prefill, decode = fixture_instances(plan)
    packing = pack_paired(prefill, decode, 2, 4)
    assert [[str(one) for one in node] for node in packing.nodes] == [
        ["p0.s0", "p1.s0", "d0.s0"],
        ["p0.s1", "p1.s1", "d0.s1"],
    ]
    assert packing.num_gpus_used == (3, 3)
    assert packing.draw().splitlines()[0] == "node 0: [p0.s0 x1] [p1.s0 x1] [d0.s0 x1] ."
    loads = path_loads(packing, prefill, decode, cluster(), 768.0 * MIB)
    assert [(one.link, one.demand_bytes_per_s) for one in loads] == [
        ("inside node 0", 384 * MIB),
        ("inside node 1", 384 * MIB),
    ]
    assert all(one.is_feasible for one in loads)


def test_the_same_instances_packed_freely_need_the_link_between_nodes():
    _, _, plan = chosen()
    prefill, decode = fixture_instances(plan)
    packing = pack_free((prefill, decode), 2, 4)
    assert [[str(one) for one in node] for node in packing.nodes] == [
        ["p0.s0", "p0.s1", "p1.s0", "p1.s1"],
        ["d0.s0", "d0.s1"],
    ]
    slow = path_loads(packing, prefill, decode, cluster(), 768.0 * MIB)
    assert {one.link: one.is_feasible for one in slow} == {
        "out of node 0": False,
        "into node 1": False,
    }
    fast = path_loads(packing, prefill, decode, cluster(4.0 * GIB), 768.0 * MIB)
    assert all(one.is_feasible for one in fast)


def test_what_fits_by_number_and_has_no_place_is_refused():
    # Nine of ten GPUs, but a node of five holds one stage of three, and two GPUs are left over.
    wide = Parallel(tp=3)
    with pytest.raises(CannotPlace, match="9 of 10 GPUs and cannot be placed"):
        pack_free((Instances(letter="m", parallel=wide, num=3),), 2, 5)
    with pytest.raises(CannotPlace, match="with stage j of both phases on one node"):
        pack_paired(
            Instances(letter="p", parallel=Parallel(tp=2), num=1),
            Instances(letter="d", parallel=Parallel(tp=3), num=1),
            2,
            4,
        )


def test_a_paired_pipeline_is_cut_no_more_than_it_must_be():
    packing = pack_paired(
        Instances(letter="p", parallel=Parallel(tp=3, pp=3), num=1),
        Instances(letter="d", parallel=Parallel(tp=4, pp=3), num=1),
        4,
        8,
    )
    assert packing.num_gpus_used == (7, 7, 7)
    inside = pack_paired(
        Instances(letter="p", parallel=Parallel(tp=4), num=1),
        Instances(letter="d", parallel=Parallel(tp=2, pp=2), num=1),
        1,
        8,
    )
    assert inside.num_gpus_used == (8,)


def test_no_phase_without_goodput_is_planned():
    none = [PhaseCandidate(parallel=TWO_STAGES, goodput_per_s=0.0)]
    _, decode, _ = chosen()
    assert best_per_gpu(none) is None and plan_for_rate(none, decode, 10.0) is None
    with pytest.raises(ConfigError, match="above 0"):
        plan_for_rate(decode, decode, 0.0)


def test_a_budget_of_gpus_is_split_by_the_slow_pool():
    (_, prefill), decode, _ = chosen()
    best = plans_for_gpus([prefill], decode, 6)[0]
    assert (best.num_prefill, best.num_decode, best.goodput_per_s) == (2, 1, 12)
    # With one GPU less nothing changes but the second prefill instance.
    fewer = plans_for_gpus([prefill], decode, 5)[0]
    assert (fewer.num_prefill, fewer.num_decode, fewer.goodput_per_s) == (1, 1, 8)
    assert plans_for_gpus([prefill], decode, 3) == []
