"""The nine-percentile contract: which bound binds, and what counts as never finished."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.goodput.interval import NothingToJudge
from baton.goodput.pools import PoolRates, mixed_capacity, static_capacity
from baton.goodput.slowdown import TBT, SlowdownTargets, judge_slowdowns

TARGETS = SlowdownTargets()


def judged(ttft=1.0, tbt=1.0, e2e=1.0):
    """Of 100 requests with equal slowdowns, or of those of an array."""
    every = {"ttft": ttft, "tbt": tbt, "e2e": e2e}
    values = {
        name: value if isinstance(value, np.ndarray) else np.full(100, value)
        for name, value in every.items()
    }
    return judge_slowdowns(values, TARGETS, TBT.PER_GAP)


def test_all_nine_hold_at_the_speed_of_an_idle_machine():
    verdict = judged()
    assert verdict.passes and len(verdict.bounds) == 9
    assert verdict.binding.name in ("P50 TBT", "P50 E2E")


def test_a_bound_is_met_by_reaching_it_and_not_beyond():
    assert judged(ttft=2.0).passes
    verdict = judged(ttft=2.0 + 1e-9)
    assert not verdict.passes and verdict.binding.name == "P50 TTFT"


def test_the_tail_can_bind_while_the_median_is_idle():
    tbt = np.array([1.0] * 85 + [1.6] * 15)
    verdict = judged(tbt=tbt)
    assert not verdict.passes
    assert verdict.binding.name == "P90 TBT"
    assert verdict.at("tbt", 50) == 1.0 and verdict.at("tbt", 90) == 1.6


def test_clocks_pass_by_themselves_while_few_requests_pass_all():
    """Ten requests miss TTFT and ten others TBT: nine percentiles hold, joint attainment is 0.8."""
    ttft, tbt = np.full(100, 1.0), np.full(100, 1.0)
    ttft[:10], tbt[10:20] = 5.9, 4.9
    assert judged(ttft=ttft, tbt=tbt).at("ttft", 90) < 3
    assert judged(ttft=ttft, tbt=tbt).passes
    assert np.mean((ttft <= 3) & (tbt <= 1.5)) == 0.8


@pytest.mark.parametrize(("num_lost", "passes"), [(0, True), (1, False), (60, False)])
def test_requests_that_never_end_are_the_slowest(num_lost, passes):
    e2e = np.array([1.0] * (100 - num_lost) + [math.inf] * num_lost)
    verdict = judged(e2e=e2e)
    assert verdict.passes == passes
    assert math.isinf(verdict.at("e2e", 99)) == (num_lost > 0)
    assert math.isinf(verdict.at("e2e", 50)) == (num_lost > 50)


def test_a_request_of_one_token_has_no_gap_and_does_not_count():
    verdict = judged(tbt=np.array([math.nan] * 99 + [1.2]))
    assert verdict.at("tbt", 50) == 1.2
    with pytest.raises(NothingToJudge, match="TBT"):
        judged(tbt=np.full(5, math.nan))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60))
def test_percentiles_are_numpys(values):
    verdict = judged(ttft=np.array(values))
    for q in (50, 90, 99):
        assert verdict.at("ttft", q) == pytest.approx(np.percentile(values, q), rel=1e-12)


@pytest.mark.parametrize(
    "bounds", [(0, 1, 2), (1, 2, math.inf), (3, 2, 1)], ids=["zero", "infinite", "falling"]
)
def test_bounds_that_mean_nothing_are_refused(bounds):
    with pytest.raises(ConfigError, match="slowdown ttft"):
        SlowdownTargets(ttft=bounds)


rates = st.floats(0, 50)


@given(st.integers(0, 9), st.integers(0, 9), rates, rates, rates, st.data())
def test_mixing_never_counts_a_machine_twice(num_prompt, num_token, prompt, token, mixed, data):
    """Whoever is borrowed, the system is no faster than every machine at its best at once."""
    one = PoolRates(prompt_per_s=prompt, token_per_s=token, mixed_per_s=mixed)
    num = data.draw(st.integers(0, num_prompt))
    capacity = mixed_capacity(num_prompt, num_token, one, num)
    assert capacity <= static_capacity(num_prompt, num_token, one) + num * mixed + 1e-9
    assert capacity <= (num_prompt - num) * prompt + num * mixed + 1e-9


@pytest.mark.parametrize(
    "fields", [{"prompt_per_s": -1.0}, {"token_per_s": math.nan}, {"mixed_per_s": math.inf}]
)
def test_rates_that_are_none_are_refused(fields):
    with pytest.raises(ConfigError, match=next(iter(fields))):
        PoolRates(**({"prompt_per_s": 1.0, "token_per_s": 1.0, "mixed_per_s": 1.0} | fields))


def test_more_borrowed_than_there_are_is_refused():
    one = PoolRates(prompt_per_s=1, token_per_s=1, mixed_per_s=1)
    with pytest.raises(ConfigError, match="num_borrowed = 3 of 2"):
        mixed_capacity(2, 5, one, 3)
    with pytest.raises(ConfigError, match="num_prompt = -1"):
        static_capacity(-1, 5, one)
