"""The one sentence: who wins, by how much, and what to say when nobody does."""

import math

import pytest
from tests.planner.plans import TARGETS, answer

from baton.goodput.interval import Estimate
from baton.planner.plan.at_rate import AtRate, Latency
from baton.planner.plan.verdict import Outcome, Standing, judge, margin_of

ALL = Estimate(value=1.0, low=0.99, high=1.0, num=100)


def at(rate, *, passes=True, ttft=200.0, tpot=20.0):
    return AtRate(
        rate_per_s=rate,
        num_requests=100,
        seeds=(0, 1, 2),
        ttft=Latency(mean_ms=ttft, p50_ms=ttft, p90_ms=ttft, p99_ms=ttft),
        tpot=Latency(mean_ms=tpot, p50_ms=tpot, p90_ms=tpot, p99_ms=tpot),
        ttft_met=ALL,
        tpot_met=ALL,
        joint_met=ALL,
        passes=passes,
        num_unserved=0,
        moved_nbytes_per_s=0.0,
        exposed_ms=0.0,
        busy_share=0.5,
        extrapolated_share=0.0,
        max_kv_share=0.1,
    )


def verdict(colocated, split, *, rate=None, safety=0.05, **where):
    standings = [
        None if rates is None else Standing(text=name, answer=answer(rates), at=where.get(name))
        for name, rates in (("two pools", colocated), ("a pair", split))
    ]
    return judge(*standings, targets=TARGETS, gpus=8, safety=safety, rate_per_s=rate)


def test_split_wins_when_even_the_low_end_exceeds_the_safety_margin():
    found = verdict([10.0, 10.2, 9.9], [14.0, 14.3, 13.8])
    assert found.outcome is Outcome.SPLIT
    assert found.sentence.startswith(
        "Split: a pair serves 14 requests/s within TTFT 500 ms and TPOT 30 ms for 90%, 1.40 times ["
    )
    assert found.sentence.endswith("what the best colocated plan does (two pools).")
    assert found.margin.ratio.low > 1.05


def test_seeds_are_pairs_so_what_they_share_cancels():
    """Rates that differ threefold between seeds, and by a tenth between arms on every one."""
    rates = [5.0, 10.0, 15.0]
    margin = margin_of(answer(rates), answer([1.1 * rate for rate in rates]), 0.0)
    assert margin.ratio.value == pytest.approx(1.1)
    assert margin.ratio.low == pytest.approx(1.1 / 1.02)
    assert margin.is_told_apart and margin.is_split_worth_it


def test_an_interval_is_never_narrower_than_the_grid_of_rates():
    margin = margin_of(answer([10.0] * 3, precision=0.1), answer([10.5] * 3, precision=0.02), 0.0)
    assert math.log(margin.ratio.high / margin.ratio.value) == pytest.approx(math.log(1.1))
    assert not margin.is_told_apart


def test_parts_of_an_arm_count_together():
    margin = margin_of(answer([10.0] * 3), answer([4.0] * 3, cells=3), 0.0)
    assert margin.ratio.value == pytest.approx(1.2)


def test_a_gain_within_the_safety_margin_is_no_reason_to_split():
    found = verdict([10.0] * 3, [10.5] * 3, safety=0.1)
    assert found.outcome is Outcome.COLOCATE
    assert "does not surely exceed the safety margin of 10%" in found.sentence


def test_colocated_wins_and_the_split_is_named_beside_it():
    found = verdict([10.0, 10.1, 9.9], [7.0, 7.2, 6.9])
    assert found.outcome is Outcome.COLOCATE
    assert found.sentence.startswith("Colocate: two pools serves 10 requests/s")
    assert "split does 0.70 times" in found.sentence and "(a pair)" in found.sentence


def test_seeds_that_disagree_say_nothing():
    found = verdict([10.0, 10.0, 10.0], [14.0, 9.0, 10.0])
    assert found.outcome is Outcome.NO_DIFFERENCE
    assert found.sentence.startswith("No difference within the error")


def test_one_that_meets_the_targets_beats_one_that_does_not():
    found = verdict(None, [14.0] * 3)
    assert found.outcome is Outcome.SPLIT and "colocated cannot be placed" in found.sentence
    found = verdict([9.0] * 3, [])
    assert found.outcome is Outcome.COLOCATE
    assert "up to 9 requests/s; split (a pair) does not at any rate: its TPOT binds" in (
        found.sentence
    )


def test_a_rate_decides_where_one_of_them_serves_it():
    found = verdict(
        [12.0] * 3,
        [10.0] * 3,
        rate=11.0,
        **{"two pools": at(11.0, passes=False), "a pair": at(11.0)},
    )
    assert found.outcome is Outcome.SPLIT
    assert "a pair meets" in found.sentence and "at 11/s" in found.sentence


def test_a_rate_that_nothing_serves_names_the_clock_and_the_gpus_it_takes():
    where = {"two pools": at(40.0, passes=False), "a pair": at(40.0, passes=False)}
    found = verdict([12.0] * 3, [16.0] * 3, rate=40.0, **where)
    assert found.outcome is Outcome.NOTHING and found.binding == "tpot"
    assert found.sentence == (
        "Nothing serves 40 requests/s within TTFT 500 ms and TPOT 30 ms for 90% on 8 GPUs: TPOT "
        "binds; closest is a pair with 16/s, and about 20 GPUs of it would do."
    )


def test_targets_that_nothing_meets_name_the_clock_and_the_closest_plan():
    where = {"two pools": at(0.1, ttft=450.0, tpot=90.0), "a pair": at(0.1, ttft=900.0, tpot=45.0)}
    found = verdict([], [], **where)
    assert found.outcome is Outcome.NOTHING and found.binding == "ttft"
    assert "TTFT binds; closest is a pair, whose requests need 900 ms at p90" in found.sentence
