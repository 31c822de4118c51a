"""The fast loop against the production nodes on the same machines, requests and policies."""

import numpy as np
import pytest
from tests.sim.fast.fast_cases import (
    DECODE,
    MIXED,
    PREFILL,
    ROUGH,
    fast,
    replayed,
    requests,
    sessions,
)

from baton.policy.batching.policies import POLICIES

LOADS = {"low": 2.0, "high": 9.0}
SERVED = [name for name in POLICIES if name != "whole_hybrid"]
"""What a served worker may be configured with."""


def figures(first_us, last_us, workload):
    arrival = np.array([one.arrival_us for one in workload.requests], np.float64)
    outputs = np.array([one.num_output_tokens for one in workload.requests])
    ttft, tpot = first_us - arrival, (last_us - first_us)[outputs > 1] / (outputs - 1)[outputs > 1]
    return {
        f"{name} {label}": float(figure(values))
        for name, values in (("ttft", ttft), ("tpot", tpot))
        for label, figure in (
            ("mean", np.mean),
            *((f"p{q}", lambda a, q=q: np.percentile(a, q)) for q in (50, 90, 99)),
        )
    }


def assert_alike(workload, roles, share=0.02, without="none", **options):
    """Means and percentiles of both clocks."""
    first, last, counts = replayed(workload, roles, **options)
    result = fast(workload, roles, **options)
    assert result.is_completed.all()
    expected = figures(first, last, workload)
    found = figures(result.first_us, result.last_us, workload)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=share) or without in name, name
    return counts, result


def assert_equal(workload, roles, **options):
    """Every token that a client can tell, to the microsecond."""
    first, last, counts = replayed(workload, roles, **options)
    result = fast(workload, roles, **options)
    assert result.first_us == pytest.approx(first, abs=1e-3)
    assert result.last_us == pytest.approx(last, abs=1e-3)
    assert result.workers.num_steps.tolist() == list(counts.num_steps.values())
    return counts, result


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("policy", SERVED)
def test_a_mixed_worker_does_exactly_what_the_production_node_does(policy, load):
    assert_equal(requests(120, LOADS[load]), (MIXED,), batch_policy=policy)


@pytest.mark.parametrize("policy", ["sarathi_serve", "token_budget", "decode_first", "phase_pure"])
def test_it_denies_and_preempts_alike_when_memory_is_short(policy):
    counts, result = assert_equal(
        requests(120, 6.0, output=100.0),
        (MIXED,),
        batch_policy=policy,
        num_blocks=520,
        growth_tokens=16,
        keeps=False,
    )
    assert result.counters["preemptions"] == counts.counters.get("preemptions", 0)
    assert result.counters["denied_reservations"] == counts.counters["denied_reservations"] > 0


def test_several_workers_with_few_sequences_and_overheads():
    assert_equal(
        requests(120, 14.0), (MIXED, MIXED, MIXED), max_num_seqs=5, overhead=(100.0, 10.0),
        delay_us=150,
    )  # fmt: skip


def test_curves_of_two_sides():
    assert_alike(requests(150, 9.0), (MIXED,), curves=ROUGH)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("schedule", ["layer", "request"])
def test_split_by_layer_and_by_request(schedule, load):
    """Not to the microsecond: each chunk of the production plane takes a whole number of them, one
    behind the other, where the loop's flows share a link. So a link is fast enough here that
    transfers seldom meet; what they do when they meet has its own formulas in test_physics."""
    assert_alike(requests(120, LOADS[load]), (PREFILL, DECODE), schedule=schedule, delay_us=150)


def test_split_with_several_workers_and_curves_of_two_sides():
    roles = (PREFILL, PREFILL, DECODE, DECODE)
    assert_alike(requests(150, 16.0), roles, curves=ROUGH, max_batch_tokens=2048)


@pytest.mark.parametrize("policy", ["static", "orca", "token_budget"])
def test_split_with_other_policies(policy):
    assert_alike(requests(100, 6.0), (PREFILL, DECODE), batch_policy=policy)


def test_split_when_the_decode_worker_is_short_of_memory():
    counts, result = assert_alike(requests(120, 9.0), (PREFILL, DECODE), num_blocks=700)
    assert result.counters["denied_reservations"] > 0 < counts.counters["denied_reservations"]


@pytest.mark.parametrize("roles", [(MIXED,), (MIXED, MIXED)])
def test_prefixes_are_found_again_by_the_same_requests(roles):
    counts, result = assert_equal(sessions(150, 12.0), roles)
    assert result.num_cached.tolist() == list(counts.num_cached_tokens)
    assert result.num_cached.sum() > 0


@pytest.mark.parametrize("route", ["local_cache_aware", "memserve"])
def test_routes_by_prefix(route):
    """Nearly every request finds the same prefix."""
    workload, roles = sessions(150, 14.0), (PREFILL, PREFILL, DECODE, DECODE)
    counts, result = assert_alike(workload, roles, route=route)
    expected = np.array(counts.num_cached_tokens)
    assert np.mean(result.num_cached == expected) >= 0.98
    assert result.num_cached.sum() == pytest.approx(expected.sum(), rel=0.01)
    assert expected.sum() > 0


@pytest.mark.parametrize("route", ["conductor", "pair"])
def test_routes_by_clocks(route):
    """A production worker learns what a step costs from its own steps, and says so with its next
    heartbeat; here it is read off the curves as they are. Some requests take another way for it,
    so that the slowest few may be others."""
    workload, roles = sessions(150, 14.0), (PREFILL, PREFILL, DECODE, DECODE)
    counts, result = assert_alike(workload, roles, route=route, without="p99")
    assert result.num_cached.sum() == pytest.approx(sum(counts.num_cached_tokens), rel=0.02)
    assert result.counters["fetched_tokens"] > 0 < counts.counters["inserted_copies"]
