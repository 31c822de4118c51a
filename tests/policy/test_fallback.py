"""What follows a failed attempt: the whole decision table (specification 0x10)."""

from itertools import product

import pytest

from baton.policy.fallback import Fallback, next_fallback

CASES = list(product(range(1, 6), range(1, 6), (False, True), (False, True)))


@pytest.mark.parametrize(("attempt", "max_attempts", "budget_left", "other_source"), CASES)
def test_the_whole_table(attempt, max_attempts, budget_left, other_source):
    chosen = next_fallback(
        attempt=attempt,
        max_attempts=max_attempts,
        budget_left=budget_left,
        other_source=other_source,
    )
    if not budget_left or attempt >= max_attempts:
        assert chosen is Fallback.FAIL
    elif attempt == max_attempts - 1:
        assert chosen is Fallback.RECOMPUTE, "the last attempt needs no peer"
    else:
        assert chosen is (Fallback.REROUTE if other_source else Fallback.RECOMPUTE)


@pytest.mark.parametrize(
    ("other_source", "order"),
    [(True, ["reroute", "recompute", "fail"]), (False, ["recompute", "recompute", "fail"])],
)
def test_three_attempts_end_in_this_order(other_source, order):
    found = [
        next_fallback(attempt=n, max_attempts=3, budget_left=True, other_source=other_source)
        for n in (1, 2, 3)
    ]
    assert found == order


def test_one_attempt_means_no_fallback():
    chosen = next_fallback(attempt=1, max_attempts=1, budget_left=True, other_source=True)
    assert chosen is Fallback.FAIL
