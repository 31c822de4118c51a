"""The rate search finds where attainment falls below its target, with few measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError, LocalProtocolError
from baton.goodput.attainment import Attainment, judge
from baton.goodput.search import Bound, RateSearch, find_goodput
from baton.goodput.slo import SLOTargets
from tests.goodput.records import record

TARGETS = SLOTargets(ttft_us=200_000, tpot_us=50_000)


def attained(num_slow_start: int, num_slow_tokens: int) -> Attainment:
    """Of twenty requests, so many miss either target, none of them both."""
    good = 20 - num_slow_start - num_slow_tokens
    late, choppy = record(300, 10), record(100, 60)
    return judge([record()] * good + [late] * num_slow_start + [choppy] * num_slow_tokens, TARGETS)


def server(phases_until: float, joint_until: float):
    """Passes each phase up to one rate, and jointly up to another."""

    def measure(rate: float) -> Attainment:
        if rate > phases_until:
            return attained(6, 6)
        return attained(1, 1) if rate <= joint_until else attained(2, 2)

    return measure


def test_both_contracts_are_found_and_every_probe_is_told():
    found = find_goodput(server(13.3, 5.2), low=1, high=64, resolution=0.25)
    assert found.phases.bound is found.joint.bound is Bound.FOUND
    assert found.phases.rate <= 13.3 < found.phases.failing_rate <= found.phases.rate + 0.25
    assert found.joint.rate <= 5.2 < found.joint.failing_rate <= found.joint.rate + 0.25
    rates = [probe.rate for probe in found.probes]
    assert rates[:5] == [1, 2, 4, 8, 16]
    assert len(rates) == len(set(rates)) <= 5 + 5 + 4
    assert (
        str(found.joint) == f"{found.joint.rate:g}/s passes, {found.joint.failing_rate:g}/s fails"
    )


def test_even_the_lowest_rate_fails():
    found = find_goodput(server(0.5, 0.1), low=1, high=8, resolution=0.1)
    assert found.phases.bound is found.joint.bound is Bound.LOWEST_FAILS
    assert found.phases.rate is None and found.phases.failing_rate == 1
    assert [probe.rate for probe in found.probes] == [1]
    assert "below 1/s" in str(found.phases)


def test_the_highest_rate_still_passes():
    found = find_goodput(server(100, 100), low=1, high=12, resolution=0.1)
    assert found.phases.bound is found.joint.bound is Bound.HIGHEST_PASSES
    assert found.phases.rate == 12 and found.phases.failing_rate is None
    assert [probe.rate for probe in found.probes] == [1, 2, 4, 8, 12]
    assert "at least 12/s" in str(found.phases)


def test_the_contracts_may_end_differently():
    found = find_goodput(server(100, 0.5), low=1, high=4, resolution=0.5)
    assert found.phases.bound is Bound.HIGHEST_PASSES
    assert found.joint.bound is Bound.LOWEST_FAILS


def test_one_rate_only():
    found = find_goodput(server(9, 1), low=3, high=3, resolution=1)
    assert (found.phases.rate, found.joint.rate) == (3, None)


@given(
    low=st.floats(0.01, 10),
    span=st.floats(1, 100),
    phases=st.floats(0.001, 1000),
    fraction=st.floats(0, 1),
    resolution=st.floats(0.01, 5),
)
def test_any_threshold_is_bracketed(low, span, phases, fraction, resolution):
    joint = phases * fraction
    high = low * span
    measured: list[float] = []

    def measure(rate: float) -> Attainment:
        measured.append(rate)
        return server(phases, joint)(rate)

    found = find_goodput(measure, low, high, resolution)
    assert len(measured) == len(set(measured)) and all(low <= rate <= high for rate in measured)
    assert [probe.rate for probe in found.probes] == measured
    for answer, threshold in ((found.phases, phases), (found.joint, joint)):
        match answer.bound:
            case Bound.FOUND:
                assert answer.rate <= threshold < answer.failing_rate <= answer.rate + resolution
            case Bound.LOWEST_FAILS:
                assert threshold < low
            case Bound.HIGHEST_PASSES:
                assert high <= threshold


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_noise_keeps_the_answer_below_every_rate_that_failed(luck):
    draws = iter(luck * 100)
    found = find_goodput(lambda rate: attained(0, 0) if next(draws) else attained(5, 5), 1, 32, 0.5)
    assert 1 <= len(found.probes) <= 12
    if found.joint.rate is not None:
        failed = [one.rate for one in found.probes if not one.attainment.joint_passes]
        assert all(found.joint.rate < rate for rate in failed)


def test_a_rate_that_passes_above_one_that_fails_is_luck():
    def measure(rate: float) -> Attainment:
        if rate > 8:
            return attained(5, 5)
        return attained(2, 2) if 2 < rate < 8 else attained(0, 0)

    found = find_goodput(measure, 1, 16, 1)
    assert (found.phases.rate, found.phases.failing_rate) == (8, 9)
    assert (found.joint.rate, found.joint.failing_rate) == (2, 3)
    assert [probe.rate for probe in found.probes] == [1, 2, 4, 8, 16, 12, 10, 9, 3]


def test_a_resolution_finer_than_numbers_still_ends():
    found = find_goodput(server(1.7, 1.7), low=1, high=2, resolution=1e-300)
    assert found.phases.rate == pytest.approx(1.7, rel=1e-15)
    assert len(found.probes) < 60


def test_the_steps_can_be_taken_one_by_one():
    search = RateSearch(1, 64, 0.25)
    while (rate := search.next_rate()) is not None:
        assert search.next_rate() == rate
        search.observe(rate, server(13.3, 5.2)(rate))
    assert search.result() == find_goodput(server(13.3, 5.2), 1, 64, 0.25)


def test_a_step_out_of_order_is_refused():
    search = RateSearch(1, 64, 0.25)
    with pytest.raises(LocalProtocolError, match="not finished; measure 1/s"):
        search.result()
    with pytest.raises(LocalProtocolError, match=r"observed 2/s while 1/s was asked"):
        search.observe(2, attained(0, 0))
    search.observe(1, attained(0, 0))
    with pytest.raises(LocalProtocolError, match="observed 1/s"):
        search.observe(1, attained(0, 0))


@pytest.mark.parametrize(
    ("bounds", "part"),
    [
        ((0, 1, 1), "low = 0"),
        ((1, float("inf"), 1), "high = inf"),
        ((1, 2, 0), "resolution = 0"),
        ((1, 2, float("nan")), "resolution = nan"),
        ((3, 2, 1), "high = 2 is below low = 3"),
    ],
)
def test_bounds_that_cannot_be(bounds, part):
    with pytest.raises(ConfigError, match=part):
        RateSearch(*bounds)
