"""Drawn, resampled, clipped and scaled lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.workload.distribution import Fixed, LogNormal, Uniform, parse_lengths, spell_lengths
from baton.workload.fit import clip, scale
from baton.workload.request import Workload, WorkloadRequest
from baton.workload.synthetic import sample_lengths, synthesize


def make(*lengths: tuple[int, int], tokens_per_hash: int = 0, **fields) -> Workload:
    return Workload(
        name="made",
        source="made",
        requests=tuple(
            WorkloadRequest(
                arrival_us=index,
                num_prompt_tokens=prompt,
                num_output_tokens=output,
                hash_ids=tuple(range(-(-prompt // tokens_per_hash))) if tokens_per_hash else (),
                **fields,
            )
            for index, (prompt, output) in enumerate(lengths)
        ),
        tokens_per_hash=tokens_per_hash,
    )


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(one.num_prompt_tokens, one.num_output_tokens) for one in workload.requests]


def test_fixed_and_uniform():
    drawn = lengths(synthesize(3000, Fixed(length=7), Uniform(low=2, high=5), seed=1))
    assert {prompt for prompt, _ in drawn} == {7}
    counts = np.bincount([output for _, output in drawn])
    assert counts[:2].sum() == 0 and len(counts) == 6 and counts[2:].min() > 650


def test_lognormal_has_its_mean_its_spread_and_its_cap():
    drawn = [
        p
        for p, _ in lengths(
            synthesize(40_000, LogNormal(mean=600, sigma=0.5, cap=10**6), Fixed(length=1), seed=1)
        )
    ]
    assert np.mean(drawn) == pytest.approx(600, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)
    capped = LogNormal(mean=600, sigma=3, cap=700)
    drawn = [p for p, _ in lengths(synthesize(2000, capped, Fixed(length=1), seed=1))]
    assert min(drawn) == 1 and max(drawn) == 700


def test_the_seed_decides():
    def draw(seed: int) -> Workload:
        return synthesize(40, Uniform(low=1, high=900), Uniform(low=1, high=900), seed=seed)

    assert draw(1) == draw(1)
    assert lengths(draw(1)) != lengths(draw(2))
    assert any(prompt != output for prompt, output in lengths(draw(1)))
    assert "uniform:1:900" in draw(1).source and "seed 1" in draw(1).source


@pytest.mark.parametrize("text", ["fixed:512", "uniform:1:9", "lognormal:600:0.8:2048"])
def test_a_distribution_is_spelled_as_it_is_parsed(text):
    assert spell_lengths(parse_lengths(text)) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("normal:5", "not known"),
        ("fixed", "not known"),
        ("fixed:1:2", "not known"),
        ("fixed:x", "'x'"),
        ("fixed:0", "length = 0"),
        ("uniform:9:2", "below low"),
        ("uniform:0:2", "low = 0"),
        ("lognormal:-1:1:9", "mean = -1"),
        ("lognormal:nan:1:9", "mean = nan"),
        ("lognormal:5:0:9", "sigma = 0"),
        ("lognormal:5:1:0", "cap = 0"),
    ],
)
def test_a_distribution_that_cannot_be(text, part):
    with pytest.raises(ConfigError, match=part):
        parse_lengths(text)


def test_resampled_pairs_stay_together_and_independent_ones_do_not():
    trace = make(*((n, 1000 + n) for n in range(1, 60)), tokens_per_hash=16)
    pairs = sample_lengths(trace, 400, seed=4, independent=False)
    assert {output - prompt for prompt, output in lengths(pairs)} == {1000}
    mixed = sample_lengths(trace, 400, seed=4, independent=True)
    assert len({output - prompt for prompt, output in lengths(mixed)}) > 50
    for drawn in (pairs, mixed):
        assert len(drawn.requests) == 400 and drawn.tokens_per_hash == 0
        assert {one.arrival_us for one in drawn.requests} == {0}
        assert "400 lengths resampled" in drawn.notes[-1] and "seed 4" in drawn.notes[-1]
    assert sample_lengths(trace, 400, seed=4, independent=True) == mixed


def test_clipping_cuts_only_what_is_too_long_and_says_so():
    trace = make((100, 100), (5, 100), (100, 5), (5, 5), (40, 40))
    clipped = clip(trace, max_prompt=50, max_output=60, max_total=70)
    assert lengths(clipped) == [(50, 20), (5, 60), (50, 5), (5, 5), (40, 30)]
    assert clipped.notes == (
        "clipped to prompt <= 50, output <= 60, total <= 70: changed 2 prompts and 3 outputs",
    )
    assert lengths(clip(make((100, 9)), max_total=10)) == [(9, 1)]
    assert clip(trace).requests == trace.requests


def test_a_clipped_prompt_keeps_its_leading_hash_ids_and_loses_its_text():
    trace = make((100, 3), (16, 3), tokens_per_hash=16, prompt="some text")
    clipped = clip(trace, max_prompt=33)
    assert [one.hash_ids for one in clipped.requests] == [(0, 1, 2), (0,)]
    assert [one.prompt for one in clipped.requests] == ["", "some text"]
    assert clipped.notes[-1].endswith("of which 1 lost their text")


@given(
    pairs=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), max_size=20),
    bounds=st.tuples(st.integers(1, 3000), st.integers(1, 3000), st.integers(2, 3000)),
)
def test_nothing_is_longer_than_the_bounds(pairs, bounds):
    max_prompt, max_output, max_total = bounds
    clipped = clip(make(*pairs), max_prompt=max_prompt, max_output=max_output, max_total=max_total)
    for (prompt, output), (was_prompt, was_output) in zip(lengths(clipped), pairs, strict=True):
        assert 1 <= prompt <= min(max_prompt, was_prompt)
        assert 1 <= output <= min(max_output, was_output)
        assert prompt + output <= max_total


@given(
    pairs=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), max_size=20),
    factor=st.sampled_from([1, 2, 8, 64, 512]),
)
def test_scaling_keeps_every_hash_id(pairs, factor):
    trace = make(*pairs, tokens_per_hash=512)
    scaled = scale(trace, factor)
    assert scaled.tokens_per_hash == 512 // factor
    for one, was in zip(scaled.requests, trace.requests, strict=True):
        assert one.hash_ids == was.hash_ids and one.arrival_us == was.arrival_us
        assert one.num_prompt_tokens == -(-was.num_prompt_tokens // factor)
        assert len(one.hash_ids) == -(-one.num_prompt_tokens // scaled.tokens_per_hash)


def test_outputs_may_be_scaled_by_another_factor():
    scaled = scale(make((1000, 1000), (3, 3)), 2.5, output_factor=10)
    assert lengths(scaled) == [(400, 100), (2, 1)]
    assert scaled.notes == ("lengths divided by 2.5 and 10: changed 2 prompts and 2 outputs",)


@pytest.mark.parametrize("factor", [3, 2.5, 1024])
def test_a_factor_that_would_break_shared_prefixes(factor):
    with pytest.raises(ConfigError, match="does not divide the 512"):
        scale(make((600, 1), tokens_per_hash=512), factor)


@pytest.mark.parametrize("factor", [0, -2, float("nan"), float("inf")])
def test_a_factor_is_a_positive_number(factor):
    with pytest.raises(ConfigError, match="factor = "):
        scale(make((600, 1)), factor)
    with pytest.raises(ConfigError, match="output_factor = "):
        scale(make((600, 1)), 1, output_factor=factor)


@pytest.mark.parametrize("bound", ["max_prompt", "max_output", "max_total"])
def test_a_bound_is_positive(bound):
    with pytest.raises(ConfigError, match=f"{bound} = 0"):
        clip(make((600, 1)), **{bound: 0})


def test_nothing_can_be_drawn_from_nothing():
    with pytest.raises(ConfigError, match="holds no requests"):
        sample_lengths(make(), 3, seed=0, independent=True)
    with pytest.raises(ConfigError, match="number of requests = 0"):
        sample_lengths(make((1, 1)), 0, seed=0, independent=True)
