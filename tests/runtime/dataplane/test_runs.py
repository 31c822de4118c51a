"""Joining neighbours keeps the bytes; nothing outside of a region passes the check."""

from hypothesis import given
from hypothesis import strategies as st

from baton.runtime.dataplane.runs import coalesce, fault_in

RUN = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))


def _moves(runs):
    return [(local + i, remote + i) for local, remote, nbytes in runs for i in range(nbytes)]


@given(st.lists(RUN, max_size=12))
def test_coalesced_runs_move_the_same_bytes_in_the_same_order(runs):
    joined = coalesce(runs)
    assert _moves(joined) == _moves(runs)
    assert all(nbytes for _, _, nbytes in joined)


def test_neighbours_become_one_run():
    assert coalesce([(0, 8, 4), (4, 12, 4), (8, 20, 4)]) == [(0, 8, 8), (8, 20, 4)]


def test_bounds_are_checked_on_both_sides():
    assert fault_in([(0, 0, 16)], 16, 16) == ""
    for run in [(1, 0, 16), (0, 1, 16), (-1, 0, 1), (0, -1, 1), (0, 0, -1), (1 << 64, 0, 1)]:
        assert fault_in([run], 16, 16)
