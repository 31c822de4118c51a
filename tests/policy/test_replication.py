"""Hot prefixes: hits fade, the table is bounded, and replicas go where there is room for load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.ids import Role
from baton.policy.replication import HotPrefixes, replication
from tests.policy.route_questions import fleets, worker

WORKERS = [
    worker("p0", pending_us=9.0),
    worker("p1", pending_us=5.0),
    worker("p2", pending_us=7.0),
    worker("d0", Role.DECODE),
]


def plan(hits: float, depths: dict[str, int], *, after: int = 10, most: int = 2, workers=WORKERS):
    return replication(hits, 4, depths, workers, replicate_hits=after, max_replicas=most)


def test_half_of_the_hits_are_forgotten_every_half_life():
    hot = HotPrefixes(half_life_us=1000)
    for _ in range(8):
        hot.hit(b"a", 0)
    assert hot.hits(b"a", 0) == 8 and hot.hits(b"a", 1000) == 4 and hot.hits(b"a", 3000) == 1
    assert hot.hit(b"a", 3000) == 2
    hot.forget(b"a")
    assert hot.hits(b"a", 3000) == 0


@given(st.lists(st.binary(min_size=1, max_size=1), max_size=100))
def test_the_table_is_bounded_and_keeps_what_is_hot(names):
    hot = HotPrefixes(max_prefixes=4)
    for _ in range(200):
        hot.hit(b"hot", 0)
    for name in names:
        hot.hit(name, 0)
    assert len(hot) <= 4
    assert hot.hits(b"hot", 0) == 200


def test_a_hot_prefix_goes_from_the_least_loaded_owner_to_the_least_loaded_without_it():
    found = plan(10.0, {"p0": 4, "d0": 6})
    assert (found.owner, found.target, found.num_blocks) == ("d0", "p1", 4)
    assert plan(10.0, {"p0": 4}).owner == "p0"
    assert plan(10.0, {"p0": 4, "p1": 3}).target == "p1", "a part of it is not the prefix"


@pytest.mark.parametrize(
    ("hits", "depths", "fields"),
    [
        (9.9, {"p0": 4}, {}),
        (1e9, {"p0": 4}, {"after": 0}),
        (1e9, {}, {}),
        (1e9, {"p0": 3}, {}),
        (1e9, {"p0": 4}, {"most": 1}),
        (1e9, {"p0": 4, "p1": 4}, {}),
        (1e9, {"p0": 4, "p1": 4, "p2": 4}, {"most": 9}),
        (19.0, {"p0": 4, "p1": 4}, {"most": 3}),
    ],
    ids=[
        "cold",
        "off",
        "nobody",
        "shallow",
        "one-owner-may",
        "full",
        "everybody",
        "each-owner-needs-hits",
    ],
)
def test_nothing_is_copied(hits, depths, fields):
    assert plan(hits, depths, **fields) is None


@given(fleets, st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 9)))
def test_a_replica_is_new_and_its_owner_has_all_of_it(workers, depths):
    found = plan(1e9, depths, most=3, workers=workers)
    if found is not None:
        by_id = {w.worker_id: w for w in workers}
        assert depths[found.owner] >= 4 > depths.get(found.target, 0)
        assert by_id[found.target].role is not Role.DECODE
        owners = [w for w in workers if depths.get(w.worker_id, 0) >= 4]
        assert len([w for w in owners if w.role is not Role.DECODE]) < 3
