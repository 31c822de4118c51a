"""The one sentence: who wins, by how much, and what to say when nobody does."""

import math

import pytest
from tests.planner.plans import TARGETS, answer

from baton.goodput.interval import Estimate
from baton.planner.goodput.answer import Contract
from baton.planner.plan.at_rate import AtRate, Latency
from baton.planner.plan.fit import Fit
from baton.planner.plan.judge import Asked, judge
from baton.planner.plan.verdict import Outcome, Standing, margin_of

ALL = Estimate(value=1.0, low=0.99, high=1.0, num=100)


def latency(ms):
    """None: too few are served."""
    return Latency(mean_ms=ms, p50_ms=ms, p90_ms=ms, p99_ms=ms, share_ms=ms)


def at(rate, *, passes=True, ttft=200.0, tpot=20.0, joint=ALL):
    return AtRate(
        rate_per_s=rate,
        num_requests=100,
        seeds=(0, 1, 2),
        ttft=latency(ttft),
        tpot=latency(tpot),
        ttft_met=ALL,
        tpot_met=ALL,
        joint_met=joint,
        passes=passes,
        num_unserved=0,
        moved_nbytes_per_s=0.0,
        exposed_ms=0.0,
        busy_share=0.5,
        extrapolated_share=0.0,
        max_kv_share=0.1,
    )


def verdict(
    colocated, split, *, rate=None, safety=0.05, gpus=(8, 8), contract="phases", fit=None, **where
):
    standings = [
        None
        if rates is None
        else Standing(text=name, answer=answer(rates), num_gpus=num, at=where.get(name))
        for name, rates, num in (("two pools", colocated, gpus[0]), ("a pair", split, gpus[1]))
    ]
    asked = Asked(
        targets=TARGETS,
        contract=Contract(contract),
        gpus=8,
        safety=safety,
        rate_per_s=rate,
        fit=fit,
    )
    return judge(*standings, asked)


def test_split_wins_when_even_the_low_end_exceeds_the_safety_margin():
    found = verdict([10.0, 10.2, 9.9], [14.0, 14.3, 13.8])
    assert found.outcome is Outcome.SPLIT
    assert found.sentence.startswith(
        "Split: a pair serves 14 requests/s within TTFT 500 ms and TPOT 30 ms (each clock by "
        "itself for 90% of the requests), 1.40 times ["
    )
    assert found.sentence.endswith("what the best colocated plan does (two pools).")
    assert found.margin.ratio.low > 1.05
    assert "serves 2330 requests/s" in verdict([1000.0] * 3, [2330.0] * 3).sentence


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
    assert found.sentence.startswith("Colocate: two pools serves 9 requests/s within")
    assert "; split (a pair) does not at any rate: its TPOT binds" in found.sentence


def test_a_rate_decides_where_one_of_them_serves_it():
    found = verdict(
        [12.0] * 3,
        [10.0] * 3,
        rate=11.0,
        **{"two pools": at(11.0, passes=False), "a pair": at(11.0)},
    )
    assert found.outcome is Outcome.SPLIT
    assert found.sentence == (
        "Split: a pair serves 11 requests/s within TTFT 500 ms and TPOT 30 ms (each clock by "
        "itself for 90% of the requests) on 8 GPUs; colocated (two pools) does not at 11/s on 8 "
        "GPUs: its TPOT binds."
    )


BOTH = {"two pools": at(5.0), "a pair": at(5.0)}


def test_at_a_rate_that_both_serve_the_one_on_fewer_gpus_wins():
    """The goodputs are those of unlike numbers of GPUs and decide nothing."""
    found = verdict([12.0] * 3, [6.0] * 3, rate=5.0, gpus=(8, 5), **BOTH)
    assert found.outcome is Outcome.SPLIT
    assert "a pair serves 5 requests/s" in found.sentence
    assert found.sentence.endswith("on 5 GPUs; colocated needs 8 (two pools).")
    found = verdict([6.0] * 3, [12.0] * 3, rate=5.0, gpus=(5, 8), **BOTH)
    assert found.outcome is Outcome.COLOCATE
    assert found.sentence.endswith("on 5 GPUs; split needs 8 (a pair).")
    found = verdict([6.0] * 3, [6.0] * 3, rate=5.0, gpus=(8, 7), safety=0.2, **BOTH)
    assert found.outcome is Outcome.COLOCATE
    assert "fewer by no more than the safety margin of 20%" in found.sentence


def test_at_a_rate_that_both_serve_on_equal_gpus_headroom_decides():
    found = verdict([6.0] * 3, [9.0] * 3, rate=5.0, **BOTH)
    assert found.outcome is Outcome.SPLIT and "serves 5 requests/s" in found.sentence
    assert "and up to 1.50 times [1.47, 1.53] the highest rate of the best colocated plan" in (
        found.sentence
    )
    found = verdict([6.0] * 3, [6.0] * 3, rate=5.0, **BOTH)
    assert found.outcome is Outcome.NO_DIFFERENCE and "serves 5 requests/s" in found.sentence


@pytest.mark.parametrize(
    ("contract", "words"),
    [("phases", "each clock by itself for 90%"), ("joint", "both at once for 90%")],
)
@pytest.mark.parametrize("rates", [([10.0] * 3, [14.0] * 3), ([14.0] * 3, [10.0] * 3), ([], [])])
def test_every_sentence_names_its_contract(contract, words, rates):
    where = {"two pools": at(1.0, ttft=900.0), "a pair": at(1.0, ttft=900.0)}
    assert words in verdict(*rates, contract=contract, **where).sentence


def test_both_clocks_at_once_may_fail_where_each_by_itself_does_not():
    joint = Estimate(value=0.85, low=0.8, high=0.9, num=100)
    where = {"two pools": at(1.0, joint=joint), "a pair": at(1.0, joint=joint)}
    found = verdict([], [], contract="joint", **where)
    assert found.outcome is Outcome.NOTHING
    assert "each clock by itself is met often enough (100.0% and 100.0%" in found.sentence
    assert "both at once by 85.0%" in found.sentence


def test_requests_that_no_memory_holds_are_not_late_ones():
    fit = Fit(num_requests=50, num_long=20, most_tokens=900, longest=2000, instance="TP1 PP1")
    where = {name: at(1.0, ttft=None, tpot=None) for name in ("two pools", "a pair")}
    found = verdict([], [], fit=fit, **where)
    assert found.binding == "memory"
    assert (
        "K/V memory binds, no clock does: 20 of 50 requests, up to 2000 tokens, are longer "
        "than the 900 tokens that the largest instance (TP1 PP1) holds, so that 60.0% can be "
        "served at most" in found.sentence
    )
    assert "--gpus" in found.sentence and "--utilization" in found.sentence


def test_a_rate_that_nothing_serves_names_the_clock_and_the_gpus_it_takes():
    where = {"two pools": at(40.0, passes=False), "a pair": at(40.0, passes=False)}
    found = verdict([12.0] * 3, [16.0] * 3, rate=40.0, **where)
    assert found.outcome is Outcome.NOTHING and found.binding == "tpot"
    assert found.sentence == (
        "Nothing serves 40 requests/s within TTFT 500 ms and TPOT 30 ms (each clock by itself for "
        "90% of the requests) on 8 GPUs: TPOT binds; closest is a pair with 16/s, and at most "
        "24 GPUs of it would do."
    )


def test_targets_that_nothing_meets_name_the_clock_and_the_closest_plan():
    where = {"two pools": at(0.1, ttft=450.0, tpot=90.0), "a pair": at(0.1, ttft=900.0, tpot=45.0)}
    found = verdict([], [], **where)
    assert found.outcome is Outcome.NOTHING and found.binding == "ttft"
    assert "TTFT binds; closest is a pair, which needs 900 ms for 90% of the" in found.sentence
