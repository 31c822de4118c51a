"""Arrival processes have the rate and the burstiness that was asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.workload.arrivals import (
    all_at_once,
    constant,
    gamma,
    mean_rate,
    poisson,
    rescale,
    with_arrivals,
)
from baton.workload.distribution import Fixed
from baton.workload.request import Workload
from baton.workload.synthetic import synthesize


def workload(num: int) -> Workload:
    return synthesize(num, Fixed(length=8), Fixed(length=2), seed=0)


def gaps_us(times_us):
    return np.diff(np.asarray(times_us))


def test_equal_gaps_do_not_drift():
    times = constant(1001, 3)
    assert times[0] == 0 and times[3] == 1_000_000 and times[1000] == 333_333_333
    assert set(gaps_us(times)) == {333_333, 333_334}


def test_all_at_once_has_no_gaps():
    assert all_at_once(3) == (0, 0, 0)


def test_poisson_gaps_are_exponential():
    gaps = gaps_us(poisson(40_001, 20, seed=3)) / 50_000
    assert gaps.mean() == pytest.approx(1, abs=0.02)
    assert gaps.std() == pytest.approx(1, abs=0.03)
    # The survival function of the exponential, which no other gap of this mean and spread has.
    for at in (0.1, 1, 3):
        assert (gaps > at).mean() == pytest.approx(np.exp(-at), abs=0.01)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_the_shape_of_the_gaps(burstiness):
    gaps = gaps_us(gamma(60_001, 10, burstiness, seed=1))
    assert gaps.mean() == pytest.approx(100_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_burstiness_one_is_poisson():
    assert gamma(50, 2, 1.0, seed=9) == poisson(50, 2, seed=9)


def test_the_seed_decides():
    assert poisson(50, 2, seed=1) == poisson(50, 2, seed=1) != poisson(50, 2, seed=2)


@given(
    num=st.integers(1, 60),
    rate=st.floats(0.01, 1000),
    burstiness=st.floats(0.05, 20),
    seed=st.integers(0, 2**32),
)
def test_arrivals_start_at_zero_and_never_go_back(num, rate, burstiness, seed):
    for times in (constant(num, rate), gamma(num, rate, burstiness, seed), all_at_once(num)):
        assert len(times) == num and times[0] == 0 and list(times) == sorted(times)
        assert all(type(one) is int for one in times)
        assert len(with_arrivals(workload(num), times).requests) == num


def test_rescaling_keeps_the_shape():
    own = with_arrivals(workload(500), gamma(500, 4, 0.3, seed=5), "gamma")
    faster = rescale(own, 40)
    assert mean_rate(faster) == pytest.approx(40)
    before = np.array([one.arrival_us for one in own.requests])
    after = np.array([one.arrival_us for one in faster.requests])
    assert np.abs(after - before * mean_rate(own) / 40).max() <= 0.5
    lengths = [(one.num_prompt_tokens, one.num_output_tokens) for one in faster.requests]
    assert lengths == [(8, 2)] * 500
    assert faster.notes[-1].endswith("to a mean rate of 40/s") and "gamma" in faster.notes


def test_a_trace_without_arrivals_cannot_be_rescaled():
    for num in (1, 5):
        with pytest.raises(ConfigError, match="no arrivals of its own"):
            rescale(workload(num), 1)


@pytest.mark.parametrize(
    ("times", "part"),
    [((0, 1), "2 arrival times for 3"), ((-1, 0, 1), "-1 us"), ((0, 5, 4), "2 is 4 us after")],
)
def test_times_that_do_not_fit(times, part):
    with pytest.raises(ConfigError, match=part):
        with_arrivals(workload(3), times)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_rate_is_a_positive_number(rate):
    with pytest.raises(ConfigError, match="rate = "):
        poisson(3, rate, seed=0)
    with pytest.raises(ConfigError, match="rate = "):
        constant(3, rate)
    with pytest.raises(ConfigError, match="rate = "):
        rescale(with_arrivals(workload(3), constant(3, 1)), rate)


@pytest.mark.parametrize("burstiness", [0, -1, float("nan"), float("inf")])
def test_burstiness_is_a_positive_number(burstiness):
    with pytest.raises(ConfigError, match="burstiness = "):
        gamma(3, 1, burstiness, seed=0)


def test_a_number_of_requests_is_positive():
    for draw in (all_at_once, lambda num: constant(num, 1), lambda num: poisson(num, 1, 0)):
        with pytest.raises(ConfigError, match="number of requests = 0"):
            draw(0)
