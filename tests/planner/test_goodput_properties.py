"""What holds for every workload, target and seed: more GPUs, both clocks, equal seeds."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.planner.machines import candidate, space, workload

from baton.goodput.slo import SLOTargets
from baton.planner.goodput import find_goodput
from baton.planner.goodput.answer import Contract
from baton.planner.placement.ask import Ask
from baton.planner.placement.colocated_search import search_colocated
from baton.planner.placement.deployments import free_topology, mixed_pool, split
from baton.planner.placement.packing import Instances, pack_free
from baton.planner.placement.search import find_placement
from baton.planner.plan.fewest import NUM_KINDS, fewest_colocated, least_that, serves_rate

PRECISION = 0.1
POLICIES = ("sarathi_serve", "prefill_first")
WHERE = space(gpus_per_node=8)
FEW = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
WORKLOADS = st.builds(
    workload,
    num=st.just(300),
    prompt=st.sampled_from([50.0, 400.0, 1500.0]),
    output=st.sampled_from([1.0, 20.0, 150.0]),
    sigma=st.sampled_from([0.0, 0.5, 1.2]),
    seed=st.integers(0, 5),
)
TARGETS = st.builds(
    SLOTargets,
    ttft_us=st.sampled_from([150_000, 600_000, 3_000_000]),
    tpot_us=st.sampled_from([12_000, 25_000, 80_000]),
    attainment=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
CONTRACTS = st.sampled_from(list(Contract))
SEEDS = st.sampled_from([(0, 1, 2), (3, 4, 5), (10, 20, 30)])


def pool(num):
    return mixed_pool(candidate(), WHERE.serving, num, batch_policy="sarathi_serve")


def pair(num_prefill, num_decode):
    one = candidate()
    groups = (
        Instances(letter="p", parallel=one.parallel, num=num_prefill),
        Instances(letter="d", parallel=one.parallel, num=num_decode),
    )
    packing = pack_free(groups, WHERE.cluster.num_nodes, WHERE.cluster.gpus_per_node)
    topology = free_topology(WHERE.cluster, packing, *groups, 10.0)
    return split(WHERE, one, num_prefill, one, num_decode, topology, 2048)


def goodput(deployment, requests, targets, contract, seeds):
    return find_goodput(
        deployment,
        requests,
        targets,
        contract=contract,
        relative_precision=PRECISION,
        seeds=seeds,
        num_requests=400,
    )


@FEW
@given(WORKLOADS, TARGETS, CONTRACTS, SEEDS, st.integers(1, 3), st.booleans())
def test_more_gpus_never_lower_goodput(requests, targets, contract, seeds, num, is_split):
    """By no more than the grid: replicas that share a queue also share its luck."""
    fewer, more = (
        goodput(pair(n, n) if is_split else pool(n), requests, targets, contract, seeds).rate.value
        for n in (num, num + 1)
    )
    assert more * (1 + PRECISION) >= fewer * (1 - 1e-9)


@FEW
@given(WORKLOADS, TARGETS, SEEDS, st.booleans())
def test_joint_is_at_most_the_least_of_the_marginals(requests, targets, seeds, is_split):
    """At every rate that a search tries, and so of what it finds."""
    deployment = pair(1, 1) if is_split else pool(2)
    joint, phases = (
        goodput(deployment, requests, targets, contract, seeds) for contract in reversed(Contract)
    )
    assert (joint.contract, phases.contract) == (Contract.JOINT, Contract.PHASES)
    assert joint.rate.value <= phases.rate.value * (1 + 1e-9)
    for probe in (*joint.probes, *phases.probes):
        shares = probe.attained.shares
        assert probe.attained.joint <= min(shares.values())
        assert probe.attained.joint >= sum(shares.values()) - 1 - 1e-9


@settings(parent=FEW, max_examples=8)
@given(WORKLOADS, TARGETS, CONTRACTS, SEEDS)
def test_equal_seeds_give_equal_placements(requests, targets, contract, seeds):
    """To the last bit, from whatever order the threads of a search end in."""
    ask = Ask(
        targets=targets,
        contract=contract,
        seeds=seeds,
        search_precision=0.2,
        final_precision=0.2,
        num_requests=150,
        most_simulated=2,
        most_refined=1,
    )
    where = space(gpus_per_node=2)
    first, second = (
        msgspec.json.encode(find_placement(where, requests, ask, policies=POLICIES), enc_hook=repr)
        for _ in range(2)
    )
    assert first == second


@given(st.integers(0, 200), st.integers(1, 250))
def test_bisection_finds_the_least_that_serves(most, needed):
    found = least_that(most, lambda num: num >= needed)
    assert found == (needed if needed <= most else None)


@settings(parent=FEW, max_examples=6)
@given(st.sampled_from([0.15, 0.3, 0.6, 0.95]), st.sampled_from([400.0, 1500.0]))
def test_the_fewest_gpus_are_those_that_trying_every_count_finds(share, prompt):
    requests = workload(prompt=prompt, num=300)
    ask = Ask(targets=SLOTargets(ttft_us=600_000, tpot_us=25_000), num_requests=300)
    where = space(cuts=((1, 1), (2, 1), (4, 1)), gpus_per_node=4)
    found = search_colocated(where, requests, ask, policies=POLICIES[1:])
    rate = share * found.best.goodput_per_s
    few = fewest_colocated(where, requests, ask, found.arms, rate)
    policies = {(arm.groups[0].batch_policy, arm.groups[0].max_batch_tokens) for arm in found.arms}
    serving = [
        num * one.gpus
        for one in where.candidates
        for num in range(1, 4 // one.gpus + 1)
        for policy, budget in policies
        if serves_rate(
            mixed_pool(one, where.serving, num, batch_policy=policy, max_batch_tokens=budget),
            requests,
            ask,
            rate,
        )
    ]
    assert len(policies) <= NUM_KINDS, "all of them are tried"
    assert few.num_gpus == min(serving)
