"""Routing: shortest prefill queue, least-loaded decode with room, and who recomputes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.ids import Role
from baton.policy.routing import Pair, WorkerLoad, recompute_worker, shortest_queue_pair


def load(worker_id: str, role: Role, pending=0, active=0, headroom=100, accepting=True):
    return WorkerLoad(
        worker_id=worker_id,
        role=role,
        pending_tokens=pending,
        active_requests=active,
        headroom_blocks=headroom,
        accepting=accepting,
    )


def prefill(worker_id: str, pending: int = 0, **kw) -> WorkerLoad:
    return load(worker_id, Role.PREFILL, pending, **kw)


def decode(worker_id: str, active: int = 0, headroom: int = 100, **kw) -> WorkerLoad:
    return load(worker_id, Role.DECODE, 0, active, headroom, **kw)


def test_the_shortest_prefill_queue_and_the_least_loaded_decode():
    workers = [prefill("p0", 9), prefill("p1", 3), decode("d0", 2), decode("d1", 1)]
    assert shortest_queue_pair(workers, 10) == Pair(prefill="p1", decode="d1")


def test_equal_loads_prefer_headroom_then_the_name():
    workers = [prefill("p1"), prefill("p0"), decode("d0", 1, 50), decode("d1", 1, 60)]
    assert shortest_queue_pair(workers, 10) == Pair(prefill="p0", decode="d1")


@pytest.mark.parametrize("unable", [decode("d0", headroom=9), decode("d0", accepting=False)])
def test_a_decode_worker_without_room_or_not_accepting_is_passed_over(unable):
    workers = [prefill("p0"), unable, decode("d1", active=9, headroom=10)]
    assert shortest_queue_pair(workers, 10) == Pair(prefill="p0", decode="d1")
    assert shortest_queue_pair(workers[:2], 10) is None


def test_a_prefill_worker_needs_no_decode_headroom():
    workers = [prefill("p0", headroom=0, accepting=False), decode("d0")]
    assert shortest_queue_pair(workers, 10) == Pair(prefill="p0", decode="d0")


@pytest.mark.parametrize("workers", [[], [prefill("p0")], [decode("d0")]])
def test_no_pair_without_both_phases(workers):
    assert shortest_queue_pair(workers, 1) is None


def test_a_failed_source_is_avoided_while_another_lives_and_used_when_none_does():
    workers = [prefill("p0", 0), prefill("p1", 99), decode("d0")]
    assert shortest_queue_pair(workers, 1, frozenset({"p0"})).prefill == "p1"
    assert shortest_queue_pair(workers, 1, frozenset({"p0", "p1"})).prefill == "p0"


def test_a_mixed_worker_serves_both_phases_itself():
    workers = [load("m0", Role.MIXED, pending=5), load("m1", Role.MIXED, pending=2)]
    assert shortest_queue_pair(workers, 1) == Pair(prefill="m1", decode="m1")
    full = [load("m0", Role.MIXED, headroom=0)]
    assert shortest_queue_pair(full, 1) is None


def test_recompute_runs_on_the_least_loaded_worker_that_can_decode():
    workers = [prefill("p0"), decode("d0", 3), decode("d1", 1), decode("d2", 0, 5)]
    assert recompute_worker(workers, 10) == Pair(prefill="d1", decode="d1")
    assert recompute_worker(workers[:1], 10) is None
    assert recompute_worker(workers, 1000) is None


loads = st.lists(
    st.builds(
        load,
        st.sampled_from("abcdef"),
        st.sampled_from(list(Role)),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 20),
        st.booleans(),
    ),
    unique_by=lambda w: w.worker_id,
    max_size=6,
)


@given(loads, st.integers(1, 20), st.sets(st.sampled_from("abcdef")))
def test_any_route_is_feasible_and_none_means_there_is_none(workers, num_blocks, avoid):
    by_id = {w.worker_id: w for w in workers}
    able = [w for w in workers if w.accepting and w.headroom_blocks >= num_blocks]
    pair = shortest_queue_pair(workers, num_blocks, frozenset(avoid))
    mixed = [w for w in able if w.role is Role.MIXED]
    sources = [w for w in workers if w.role is Role.PREFILL]
    sinks = [w for w in able if w.role is Role.DECODE]
    assert (pair is None) == (not mixed and not (sources and sinks))
    if pair is not None:
        assert by_id[pair.decode] in able
        assert by_id[pair.decode].role is not Role.PREFILL
        assert by_id[pair.prefill].role in (Role.PREFILL, Role.MIXED)
    recompute = recompute_worker(workers, num_blocks)
    assert (recompute is None) == (not mixed and not sinks)
    assert recompute is None or recompute.prefill == recompute.decode


@given(loads, st.integers(1, 20))
def test_a_route_does_not_depend_on_the_order_of_the_workers(workers, num_blocks):
    orders = itertools.islice(itertools.permutations(workers), 6)
    assert len({shortest_queue_pair(order, num_blocks) for order in orders}) <= 1
