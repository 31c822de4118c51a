"""Bootstrap intervals: seeded, and as often right as they claim."""

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.goodput import interval
from baton.goodput.interval import (
    NothingToJudge,
    Sampling,
    bootstrap,
    bootstrap_clusters,
    bootstrap_paired_ratio,
    bootstrap_proportion,
    percentile,
)


def dice(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def covered(estimates, truth: float) -> float:
    return float(np.mean([one.low <= truth <= one.high for one in estimates]))


def test_the_seed_decides():
    data = dice(0).normal(5, 1, 50).tolist()
    assert bootstrap(data) == bootstrap(data)
    assert bootstrap(data) != bootstrap(data, sampling=Sampling(seed=1))


def test_the_interval_of_a_mean_is_the_textbook_one():
    data = dice(1).normal(5, 2, 400)
    estimate = bootstrap(data.tolist())
    half = 1.96 * data.std() / 20
    assert estimate.value == pytest.approx(data.mean()) and estimate.num == 400
    assert estimate.low == pytest.approx(data.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(data.mean() + half, abs=0.1 * half)


def test_ninety_five_of_a_hundred_intervals_hold_the_truth():
    few = Sampling(num_resamples=500)
    means = [bootstrap(dice(n).exponential(3, 100).tolist(), sampling=few) for n in range(300)]
    assert 0.89 <= covered(means, 3) <= 0.98
    draws = dice(7).binomial(100, 0.9, 400).tolist()
    shares = [bootstrap_proportion(met, 100, few) for met in draws]
    assert 0.89 <= covered(shares, 0.9) <= 0.98


def test_a_percentile_has_an_interval_too():
    data = dice(2).exponential(100, 3000)
    estimate = bootstrap(data.tolist(), percentile(99))
    assert estimate.value == pytest.approx(np.percentile(data, 99))
    assert estimate.low < 460.5 < estimate.high
    assert estimate.high - estimate.low > 20


def test_a_proportion_is_the_bootstrap_of_ones_and_zeros():
    fast = bootstrap_proportion(70, 100)
    slow = bootstrap([1.0] * 70 + [0.0] * 30)
    assert fast.value == slow.value == 0.7
    assert fast.low == pytest.approx(slow.low, abs=0.011)
    assert fast.high == pytest.approx(slow.high, abs=0.011)


def test_all_of_a_few_is_no_certainty():
    everything, nothing = bootstrap_proportion(10, 10), bootstrap_proportion(0, 10)
    # Clopper-Pearson for 10 of 10 at 95 %.
    assert everything.low == pytest.approx(0.6915, abs=1e-4) and everything.high == 1
    assert nothing.high == pytest.approx(0.3085, abs=1e-4) and nothing.low == 0


def arms(seed: int) -> tuple[list[float], list[float]]:
    """Loads that differ widely, on which one arm takes half as long again as the other."""
    shared = dice(seed).lognormal(0, 1, 200)
    noise = dice(seed + 1000).normal(1, 0.02, 200)
    return (1.5 * shared * noise).tolist(), shared.tolist()


def test_a_paired_ratio_cancels_what_both_arms_share():
    above, below = arms(3)
    paired = bootstrap_paired_ratio(above, below)
    unpaired = bootstrap_paired_ratio(dice(5).permutation(above).tolist(), below)
    assert paired.value == unpaired.value == pytest.approx(1.5, rel=0.01)
    assert unpaired.high - unpaired.low > 10 * (paired.high - paired.low)


def test_paired_intervals_hold_the_truth_too():
    few = Sampling(num_resamples=500)
    ratios = [bootstrap_paired_ratio(*arms(seed), few) for seed in range(300)]
    assert 0.89 <= covered(ratios, 1.5) <= 0.98


def test_repetitions_that_differ_widen_the_interval():
    levels = dice(6).normal(10, 3, 8)
    runs = [dice(n).normal(level, 0.1, 100).tolist() for n, level in enumerate(levels)]
    whole = bootstrap_clusters(runs)
    flat = bootstrap([one for run in runs for one in run])
    assert whole.value == pytest.approx(flat.value)
    assert (whole.num, flat.num) == (8, 800)
    assert whole.high - whole.low > 5 * (flat.high - flat.low)


def test_repetitions_weigh_by_their_observations():
    assert bootstrap_clusters([[1.0] * 3, [5.0]]).value == 2.0


def test_resampling_in_parts_gives_what_it_gives_at_once(monkeypatch):
    data = dice(8).normal(0, 1, 64).tolist()
    at_once = bootstrap(data)
    monkeypatch.setattr(interval, "MAX_CELLS", 64 * 7)
    assert bootstrap(data) == at_once


def test_one_observation_has_no_spread():
    estimate = bootstrap([4.0])
    assert (estimate.low, estimate.value, estimate.high, estimate.num) == (4, 4, 4, 1)
    assert str(estimate) == "4 [4, 4]"
    assert estimate.times(2.5).value == 10


@pytest.mark.parametrize(
    "empty",
    [
        lambda: bootstrap([]),
        lambda: bootstrap_proportion(0, 0),
        lambda: bootstrap_paired_ratio([], []),
        lambda: bootstrap_clusters([]),
        lambda: bootstrap_clusters([[1.0]]),
        lambda: bootstrap_clusters([[1.0], []]),
    ],
)
def test_without_observations_there_is_nothing_to_judge(empty):
    with pytest.raises(NothingToJudge, match="nothing to judge"):
        empty()


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (lambda: bootstrap([1.0, float("nan")]), "observation 1 is nan"),
        (lambda: bootstrap_proportion(3, 2), "num_met = 3 of num = 2"),
        (lambda: bootstrap_paired_ratio([1.0], [1.0, 2.0]), "1 numerators and 2"),
        (lambda: bootstrap_paired_ratio([1.0, 1.0], [1.0, 0.0]), "denominator 0.0"),
        (lambda: percentile(101), "percentile = 101"),
        (lambda: Sampling(level=95), "level = 95"),
        (lambda: Sampling(num_resamples=10), "num_resamples = 10"),
    ],
)
def test_wrong_input_is_named(wrong, part):
    with pytest.raises(ConfigError, match=part):
        wrong()
