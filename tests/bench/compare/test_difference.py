"""The comparison sees each kind of difference, and a comparison of nothing is not a success."""

import pytest
from compare_records import CASE, arm, record

from baton.bench.compare.difference import Aspect, Comparison, compare
from baton.core.ids import Mode

COLOCATED, DISAGGREGATED = Mode.COLOCATED, Mode.DISAGGREGATED


def compared(deterministic: bool = True, **changes: object) -> Comparison:
    """The comparison of two records that differ in `changes`."""
    return compare(
        arm(COLOCATED, record(COLOCATED), deterministic=deterministic),
        arm(DISAGGREGATED, record(DISAGGREGATED, **changes), deterministic=deterministic),
        [CASE],
    )


def test_equal_records_are_the_same() -> None:
    comparison = compared()
    assert comparison.same and comparison.exact
    assert [verdict.differences for verdict in comparison.verdicts] == [()]


@pytest.mark.parametrize(
    ("changes", "aspect", "text"),
    [
        ({"tokens": (5, 9, 7)}, Aspect.TOKENS, "token 1 is 9 instead of 6"),
        ({"tokens": (5, 6)}, Aspect.TOKENS, "2 of token instead of 3"),
        ({"text": "x"}, Aspect.TOKENS, "text is 'x' instead of ''"),
        ({"logits": ("a", "b", "x")}, Aspect.LOGITS, "logits digest 2 is 'x' instead of 'c'"),
        ({"logits": ("a", "", "c")}, Aspect.LOGITS, "a token has no logits digest"),
        ({"logprobs": "[1]"}, Aspect.LOGITS, "logprobs is '[1]' instead of ''"),
        ({"kv_digest": "x"}, Aspect.KV, "K/V digest is 'x' instead of 'kv'"),
        ({"kv_digest": ""}, Aspect.KV, "the K/V digest is missing"),
        ({"finish_reason": "stop"}, Aspect.END, "finish reason is 'stop' instead of 'length'"),
        ({"prompt_tokens": 5}, Aspect.END, "prompt_tokens is 5 instead of 4"),
        ({"completion_tokens": 2}, Aspect.END, "completion_tokens is 2 instead of 3"),
        ({"mode": Mode.RECOMPUTED}, Aspect.RUN, "ran recomputed instead of disaggregated"),
        ({"mode": Mode.COLOCATED}, Aspect.RUN, "ran colocated instead of disaggregated"),
        ({"mode": ""}, Aspect.RUN, "ran in no mode instead of disaggregated"),
        ({"num_failed_attempts": 1}, Aspect.RUN, "disaggregated: 1 attempts failed"),
        ({"error": "gone"}, Aspect.RUN, "disaggregated: gone"),
        ({"unexercised": "no stop"}, Aspect.RUN, "disaggregated: no stop"),
        ({"visible_tokens": 0}, Aspect.RUN, "0 tokens visible at the destination instead of 16"),
        ({"cached_tokens": 0}, Aspect.RUN, "0 tokens cached at the source instead of 16"),
    ],
)
def test_each_kind_of_difference(changes: dict[str, object], aspect: Aspect, text: str) -> None:
    comparison = compared(**changes)
    assert not comparison.same
    found = [(d.aspect, d.text) for v in comparison.verdicts for d in v.differences]
    assert (aspect, text) in found


def test_missing_and_unknown_records() -> None:
    ours, theirs = record(COLOCATED), record(DISAGGREGATED)
    for reference, candidate, lacking in (
        (arm(COLOCATED, ours), arm(DISAGGREGATED), "disaggregated arm"),
        (arm(COLOCATED), arm(DISAGGREGATED, theirs), "colocated arm"),
    ):
        (verdict,) = compare(reference, candidate, [CASE]).verdicts
        assert [d.text for d in verdict.differences] == [f"no record on arm {lacking}"]


def test_a_case_without_any_record_fails() -> None:
    comparison = compare(
        arm(COLOCATED, record(COLOCATED)), arm(DISAGGREGATED, record(DISAGGREGATED)), [CASE, "two"]
    )
    assert not comparison.same
    assert [v.case for v in comparison.verdicts if not v.same] == ["two"]


def test_nothing_compared_is_not_a_success() -> None:
    assert not compare(arm(COLOCATED), arm(DISAGGREGATED), []).same


def test_both_sides_empty_is_not_equality() -> None:
    empty = {"tokens": (), "logits": (), "kv_digest": "", "completion_tokens": 0}
    comparison = compare(
        arm(COLOCATED, record(COLOCATED, **empty)),
        arm(DISAGGREGATED, record(DISAGGREGATED, **empty)),
        [CASE],
    )
    texts = [d.text for d in comparison.verdicts[0].differences]
    assert "disaggregated: nothing was generated" in texts
    assert "the K/V digest is missing" in texts


def test_the_same_failure_on_both_sides_is_not_equality() -> None:
    failed = {"error": "too_large", "tokens": (), "logits": (), "kv_digest": ""}
    comparison = compare(
        arm(COLOCATED, record(COLOCATED, **failed)),
        arm(DISAGGREGATED, record(DISAGGREGATED, **failed)),
        [CASE],
    )
    assert not comparison.same


def test_without_determinism_only_tokens_and_ends_are_required() -> None:
    comparison = compared(deterministic=False, logits=("a", "b", "x"), kv_digest="x")
    assert comparison.same and not comparison.exact
    assert {note.aspect for note in comparison.verdicts[0].notes} == {Aspect.LOGITS, Aspect.KV}
    assert not compared(deterministic=False, tokens=(5, 6, 8)).same
    assert not compared(deterministic=False, mode=Mode.RECOMPUTED).same


def test_a_request_given_up_needs_no_kv_digest() -> None:
    given_up = {"whole": False, "kv_digest": ""}
    comparison = compare(
        arm(COLOCATED, record(COLOCATED, **given_up)),
        arm(DISAGGREGATED, record(DISAGGREGATED, **given_up)),
        [CASE],
    )
    assert comparison.same
