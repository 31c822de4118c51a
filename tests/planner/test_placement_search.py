"""Placement searches on a machine made up for tests: bounds, optima, order, determinism."""

import msgspec
import pytest
from tests.planner.machines import candidate, space, workload

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.planner.goodput import find_goodput
from baton.planner.goodput.answer import Contract
from baton.planner.placement.arms import in_order
from baton.planner.placement.ask import POLICIES, Ask, Objective
from baton.planner.placement.colocated_search import budgets, search_colocated
from baton.planner.placement.deployments import (
    decode_only,
    free_topology,
    mixed_pool,
    prefill_only,
    prompts_alone,
    split,
)
from baton.planner.placement.for_rate import place_for_rate
from baton.planner.placement.packing import CannotPlace, Instances, pack_free
from baton.planner.placement.search import find_placement, paired_ratio
from baton.planner.placement.split_search import (
    search_high_affinity,
    search_low_affinity,
    search_phases,
)
from baton.policy.batching.policies import POLICIES as BATCH_POLICIES

TARGETS = SLOTargets(ttft_us=400_000, tpot_us=25_000)
ASK = Ask(targets=TARGETS, search_precision=0.1, final_precision=0.1, num_requests=250)
FEW_POLICIES = ("prefill_first",)


def links(where, num_prefill, num_decode):
    groups = (
        Instances(letter="p", parallel=candidate().parallel, num=num_prefill),
        Instances(letter="d", parallel=candidate().parallel, num=num_decode),
    )
    packing = pack_free(groups, where.cluster.num_nodes, where.cluster.gpus_per_node)
    return free_topology(where.cluster, packing, *groups, 10.0)


def halves(where, num_prefill, num_decode):
    one = candidate()
    topology = links(where, num_prefill, num_decode)
    return split(where, one, num_prefill, one, num_decode, topology, 2048)


def goodput(deployment, **asked):
    return find_goodput(
        deployment, workload(), TARGETS, relative_precision=0.05, num_requests=600, **asked
    )


def test_each_phase_alone_bounds_the_whole():
    where = space(gpus_per_node=2)
    first = find_goodput(
        prefill_only(candidate(), where.serving, 2048),
        prompts_alone(workload()),
        SLOTargets(ttft_us=TARGETS.ttft_us),
        num_requests=600,
    )
    second = goodput(decode_only(candidate(), where.serving))
    whole = goodput(halves(where, 1, 1))
    assert whole.rate.value <= 1.06 * min(first.rate.value, second.rate.value)


@pytest.mark.parametrize("kind", ["mixed", "prefill", "decode"])
def test_one_more_replica_never_lowers_goodput(kind):
    where = space(gpus_per_node=8)
    rates = []
    for num in (1, 2, 3):
        if kind == "mixed":
            deployment = mixed_pool(candidate(), where.serving, num)
        elif kind == "prefill":
            deployment = halves(where, num, 2)
        else:
            deployment = halves(where, 2, num)
        rates.append(goodput(deployment).rate.value)
    assert rates[0] <= 1.05 * rates[1] and rates[1] <= 1.05 * rates[2]


def test_joint_goodput_is_never_above_that_of_phases():
    deployment = mixed_pool(candidate(), space().serving, 2)
    joint = goodput(deployment, contract=Contract.JOINT)
    phases = goodput(deployment, contract=Contract.PHASES)
    assert joint.rate.value <= phases.rate.value
    for probe in (*joint.probes, *phases.probes):
        assert probe.attained.joint <= min(probe.attained.shares.values())


def test_the_search_finds_what_trying_everything_finds():
    where = space(cuts=((1, 1), (2, 1)), gpus_per_node=4)
    phases = search_phases(where, workload(), ASK, prunes=True)
    found = search_high_affinity(where, workload(), ASK, phases)
    everything = msgspec.structs.replace(ASK, slack=0.99, most_simulated=100)
    bounds = search_phases(where, workload(), everything, prunes=False)
    other = search_high_affinity(where, workload(), everything, bounds)
    assert found.searched.gap == 0 and found.best is not None and other.best is not None
    assert str(found.best) == str(other.best)
    assert found.best.goodput_per_s == pytest.approx(other.best.goodput_per_s, rel=0.101)


def test_colocated_pools_cover_every_policy_and_budget():
    assert set(POLICIES) == set(BATCH_POLICIES)
    where = space(cuts=((1, 1),), gpus_per_node=1)
    found = search_colocated(where, workload(), ASK)
    assert found.searched.num_configurations == sum(len(budgets(name)) for name in POLICIES)
    assert found.best is not None and found.best.is_refined
    searched = found.searched
    assert searched.num_pruned + searched.num_deployments == searched.num_configurations
    assert str(searched.num_pruned) in searched.statement


def test_equal_asks_get_equal_placements_and_splits_pair_with_pools():
    where = space(gpus_per_node=2)
    one = find_placement(where, workload(), ASK, policies=FEW_POLICIES)
    same = find_placement(where, workload(), ASK, policies=FEW_POLICIES)
    assert one == same
    split_arm, pool = one.best_split, one.best_colocated
    assert split_arm is not None and pool is not None
    ratio = paired_ratio(split_arm, pool)
    assert ratio.low <= split_arm.goodput_per_s / pool.goodput_per_s <= ratio.high
    assert split_arm.num_gpus == 2 and split_arm.residency.num_copies == 2
    assert [group.role for group in split_arm.groups] == [Role.PREFILL, Role.DECODE]
    assert split_arm.packing.num_gpus_used == (2,) and split_arm.paths[0].is_feasible


def test_a_slow_link_between_nodes_is_avoided_by_pairing():
    # 0.1 MB for each of some 450 tokens: 45 MB a request, and links of 20 MB/s.
    slow = space(cuts=((1, 1),), num_nodes=2, gpus_per_node=2, node_bytes_per_s=20e6)
    phases = search_phases(slow, workload(), ASK, prunes=False)
    low = search_low_affinity(slow, workload(), ASK, phases).best
    assert low is not None and low.num_cells == 2 and low.num_gpus == 4
    assert all(one.link.startswith("inside") for one in low.paths)
    high = search_high_affinity(slow, workload(), ASK, phases)
    # Four GPUs placed freely put both decode instances on the second node.
    assert high.best is None or high.best.goodput_per_s < 0.5 * low.goodput_per_s


def test_goodput_per_gpu_prefers_a_pair_that_is_repeated():
    where = space(cuts=((1, 1),), num_nodes=2, gpus_per_node=2)
    ask = msgspec.structs.replace(ASK, objective=Objective.PER_GPU)
    phases = search_phases(where, workload(), ask, prunes=False)
    pair = search_low_affinity(where, workload(), ask, phases, most_instances=1).best
    assert pair is not None and (pair.num_cells, pair.num_gpus) == (1, 2)
    assert in_order([pair], ask) == [pair]


def test_replicas_for_a_rate_are_placed_or_refused_with_the_link_that_is_full():
    where = space(cuts=((1, 1),), num_nodes=2, gpus_per_node=2)
    phases = search_phases(where, workload(), ASK, prunes=False)
    arm = place_for_rate(where, workload(), ASK, phases, 20.0)
    assert arm.num_gpus <= 4 and arm.goodput_per_s > 0.8 * 20.0
    slow = space(cuts=((1, 1),), num_nodes=2, gpus_per_node=1, node_bytes_per_s=20e6)
    with pytest.raises(CannotPlace, match=r"out of node 0: .* of 0.02 GB/s, NOT feasible"):
        place_for_rate(slow, workload(), ASK, phases, 1.0)
    with pytest.raises(CannotPlace, match="cannot be placed stage by stage"):
        place_for_rate(where, workload(), ASK, phases, 500.0)


def test_what_no_plan_can_meet_is_none_and_names_the_clock():
    hopeless = msgspec.structs.replace(ASK, targets=SLOTargets(ttft_us=400_000, tpot_us=5_000))
    found = find_placement(
        space(cuts=((1, 1),), gpus_per_node=2), workload(), hopeless, policies=FEW_POLICIES
    )
    assert found.best_split is None and found.best_colocated is None


def test_asks_and_clusters_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="give both"):
        Ask(targets=SLOTargets(ttft_us=1000))
    with pytest.raises(ConfigError, match="at least 4 GPUs"):
        find_placement(space(cuts=((2, 1),), gpus_per_node=2), workload(), ASK)
