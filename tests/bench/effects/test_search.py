"""The search for a split finds the known best ones, and ends where it should."""

import pytest

from baton.bench.effects.runahead import coarse_stride
from baton.bench.effects.split_search import coarse_splits, search_split


def dense(total: int, first: int) -> float:
    """Each process's rows attend to all rows up to its last, at full cost; the slower counts."""
    return max(first * first, (total - first) * total)


def triangular(total: int, first: int) -> float:
    return max(first * (first + 1) / 2, (total * (total + 1) - first * (first + 1)) / 2)


@pytest.mark.parametrize(("cost", "share"), [(dense, 0.618), (triangular, 0.707)])
def test_the_closed_forms_are_found(cost, share):
    total = 4096
    best, samples = search_split(total, 512, 1, 1, lambda split: cost(total, split))
    assert best == min(range(1, total), key=lambda split: cost(total, split))
    assert best / total == pytest.approx(share, abs=1e-3)
    assert len(samples) < 40, "a hierarchical search looks at few of the 4095 splits"


def test_the_stride_halves_down_to_the_finest():
    measured: list[int] = []

    def time_of(split: int) -> float:
        measured.append(split)
        return triangular(2048, split)

    best, samples = search_split(2048, 256, 64, 2, time_of)
    coarse = coarse_splits(2048, 256)
    assert coarse == [512, 768, 1024, 1280, 1536, 1792]
    assert measured[:12] == coarse * 2, "the splits of one grid are measured in turns"
    assert measured[12:18] == [1408, 1536, 1664] * 2
    assert measured[18:] == [1344, 1408, 1472] * 2
    assert best == 1472 and set(measured) == set(samples)


def test_a_slow_minute_does_not_decide():
    """All that is measured after the coarse grid takes three times as long."""
    measured: list[int] = []

    def time_of(split: int) -> float:
        measured.append(split)
        return triangular(2048, split) * (1 if len(measured) <= 12 else 3)

    best, _ = search_split(2048, 256, 64, 2, time_of)
    assert best == 1472


@pytest.mark.parametrize(("length", "stride"), [(1536, 256), (2048, 256), (3072, 512), (200, 64)])
def test_the_coarse_stride_is_on_the_attention_grid(length, stride):
    assert coarse_stride(length) == stride
