"""Goodput from a few rates: where attainment falls below the target, and how sure that is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.goodput.curve import goodput_at, goodput_curves, goodput_ratio
from baton.goodput.interval import Sampling

FAST = Sampling(num_resamples=200)


def met(share: float, num: int = 100) -> list[bool]:
    return [i < round(share * num) for i in range(num)]


@pytest.mark.parametrize(
    ("attained", "goodput"),
    [
        ((1.0, 1.0, 1.0), 3.0),
        ((1.0, 0.9, 0.8), 2.0),
        ((1.0, 0.95, 0.85), 2.5),
        ((1.0, 0.5, 1.0), 1.2),
        ((0.8, 1.0, 1.0), 0.0),
        ((0.9, 0.0, 0.0), 1.0),
    ],
)
def test_the_highest_rate_at_the_target_between_measured_ones(attained, goodput):
    assert goodput_at((1.0, 2.0, 3.0), attained, 0.9) == pytest.approx(goodput)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.1, 1.0))
def test_goodput_never_leaves_the_measured_range_and_never_gains_from_a_worse_rate(
    attained, target
):
    rates = [float(i + 1) for i in range(len(attained))]
    value = goodput_at(rates, attained, target)
    assert 0 <= value <= rates[-1]
    worse = [*attained[:-1], 0.0]
    assert goodput_at(rates, worse, target) <= value


def test_a_curve_says_when_its_range_was_too_narrow():
    arms = {"low": {1.0: met(0.5), 2.0: met(0.4)}, "high": {1.0: met(1.0), 2.0: met(0.95)}}
    curves = goodput_curves(arms, 0.9, FAST)
    assert curves["low"].is_below_range and curves["low"].goodput.value == 0
    assert curves["high"].is_above_range and curves["high"].goodput.value == 2
    assert not curves["high"].is_below_range and not curves["low"].is_above_range


def test_the_interval_holds_the_value_and_narrows_with_more_requests():
    few = goodput_curves({"a": {1.0: met(1, 20), 2.0: met(0.8, 20)}}, 0.9, FAST)["a"].goodput
    many = goodput_curves({"a": {1.0: met(1, 2000), 2.0: met(0.8, 2000)}}, 0.9, FAST)["a"].goodput
    assert few.low <= few.value <= few.high
    assert many.high - many.low < few.high - few.low


def test_a_ratio_of_arms_that_meet_on_the_same_requests_is_certain():
    same = {1.0: met(1), 2.0: met(0.85)}
    ratio = goodput_ratio({"a": same, "b": dict(same)}, "a", "b", 0.9, FAST)
    assert ratio is not None and ratio.low == ratio.value == ratio.high == 1


def test_there_is_no_ratio_to_an_arm_that_passes_nowhere():
    arms = {"a": {1.0: met(1)}, "b": {1.0: met(0.2)}}
    assert goodput_ratio(arms, "a", "b", 0.9, FAST) is None


def test_arms_must_have_answered_the_same_requests():
    arms = {"a": {1.0: met(1, 10)}, "b": {1.0: met(1, 11)}}
    with pytest.raises(ConfigError, match="b: other requests than its rivals at rate 1"):
        goodput_curves(arms, 0.9, FAST)
    with pytest.raises(ConfigError, match="a: a rate without requests"):
        goodput_curves({"a": {1.0: []}}, 0.9, FAST)
