"""Byte credits of specification 0x06B: never negative, never above capacity, all back once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.protocol.credits import CreditWindow


@given(st.integers(1, 64), st.lists(st.tuples(st.booleans(), st.integers(1, 80))))
def test_in_flight_bytes_stay_within_capacity_on_any_walk(capacity, steps):
    window = CreditWindow(capacity)
    out: list[int] = []
    peak = 0
    for acquire, nbytes in steps:
        if acquire:
            before = window.inflight_nbytes
            taken = window.try_acquire(nbytes)
            assert taken == (before + nbytes <= capacity)
            out += [nbytes] * taken
        elif out:
            window.release(out.pop(0))
        peak = max(peak, sum(out))
        assert window.inflight_nbytes == sum(out)
        assert 0 <= window.inflight_nbytes <= capacity
    assert window.peak_nbytes == peak
    for nbytes in out:
        window.release(nbytes)
    assert window.inflight_nbytes == 0


def test_a_chunk_larger_than_the_window_never_fits():
    window = CreditWindow(1024)
    assert not window.try_acquire(1025)
    assert window.inflight_nbytes == window.peak_nbytes == 0
    assert window.try_acquire(1024)


@pytest.mark.parametrize("nbytes", [0, -1, 513])
def test_returning_what_is_not_out_is_our_own_bug(nbytes):
    window = CreditWindow(1024)
    window.try_acquire(512)
    with pytest.raises(AssertionError):
        window.release(nbytes)
    assert window.inflight_nbytes == 512


@pytest.mark.parametrize("nbytes", [0, -1])
def test_nothing_cannot_be_acquired(nbytes):
    with pytest.raises(AssertionError):
        CreditWindow(1024).try_acquire(nbytes)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_window_of_nothing_is_refused(capacity):
    with pytest.raises(AssertionError):
        CreditWindow(capacity)
