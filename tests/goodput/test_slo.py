"""Targets as they are written on a command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets, parse_goodput


def test_targets_are_milliseconds_in_any_order():
    expected = SLOTargets(ttft_us=200_000, tpot_us=50_000, e2e_us=1_000_000)
    assert parse_goodput(["ttft:200", "tpot:50", "e2el:1000"]) == expected
    assert parse_goodput("e2el:1000 tpot:50 ttft:200") == expected
    assert parse_goodput(["tpot:2.5"], 0.99) == SLOTargets(tpot_us=2500, attainment=0.99)
    assert str(expected) == "ttft:200 tpot:50 e2el:1000"


@given(
    st.dictionaries(st.sampled_from(["ttft", "tpot", "e2el"]), st.integers(1, 10**9), min_size=1)
)
def test_targets_are_spelled_as_they_are_parsed(targets):
    words = [f"{word}:{us / 1000}" for word, us in targets.items()]
    parsed = parse_goodput(words)
    assert (parsed.ttft_us, parsed.tpot_us, parsed.e2e_us) == tuple(
        targets.get(word) for word in ("ttft", "tpot", "e2el")
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["no target", "ttft:200"]),
        (["  "], ["no target"]),
        (["itl:5"], ["'itl'", "ttft, tpot, e2el"]),
        (["TTFT:5"], ["'TTFT'"]),
        (["ttft"], ["'ttft'", "no milliseconds"]),
        (["ttft:"], ["''", "not a number"]),
        (["ttft:fast"], ["'fast'", "not a number"]),
        (["ttft:200ms"], ["'200ms'", "not a number"]),
        (["ttft:0"], ["'0'", "above 0"]),
        (["ttft:-1"], ["'-1'", "above 0"]),
        (["ttft:nan"], ["'nan'", "finite"]),
        (["ttft:inf"], ["'inf'", "finite"]),
        (["ttft:1e-9"], ["'1e-9'", "0.001"]),
        (["ttft:1", "tpot:1", "ttft:2"], ["'ttft:2'", "twice"]),
    ],
)
def test_a_target_that_cannot_be(words, parts):
    with pytest.raises(ConfigError) as caught:
        parse_goodput(words)
    assert [part for part in ["--goodput", *parts] if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, "no latency target"),
        ({"ttft_us": 0}, "ttft_us = 0"),
        ({"tpot_us": -3}, "tpot_us = -3"),
        ({"e2e_us": 1, "attainment": 0}, "attainment = 0"),
        ({"e2e_us": 1, "attainment": 90}, "attainment = 90"),
        ({"e2e_us": 1, "attainment": float("nan")}, "attainment = nan"),
    ],
)
def test_targets_that_cannot_be(fields, part):
    with pytest.raises(ConfigError, match=part):
        SLOTargets(**fields)
