"""Specification 0x08F to 0x08I: pool capacities, the FCFS prompt batch, and the mixed phase.

The transfer recurrences of the same part are in test_transfer_schedules.
"""

import pytest

from baton.core.ids import PromptOrder, Role
from baton.goodput.pools import PoolRates, best_borrowed, mixed_capacity, static_capacity
from baton.policy.batching.policies import POLICIES
from baton.policy.batching.priority import choose_mixed_phase
from baton.policy.batching.view import BatchLimits, Entry, QueueView

RATES = PoolRates(prompt_per_s=6, token_per_s=4, mixed_per_s=4)


def test_two_dedicated_pools_are_as_fast_as_the_slower_one():
    assert static_capacity(2, 2, RATES) == min(12, 8) == 8


def test_a_borrowed_prompt_machine_relieves_both_pools_once():
    assert mixed_capacity(2, 2, RATES, 1) == min(6 + 4, 8 + 4) == 10
    # Adding its mixed rate to the static sum would claim 12, as if there were a fifth machine.
    assert mixed_capacity(2, 2, RATES, 1) < static_capacity(2, 2, RATES) + RATES.mixed_per_s


def test_the_best_number_to_borrow_is_the_fixtures():
    assert best_borrowed(2, 2, RATES) == (Role.PREFILL, 1, 10)


def test_borrowing_nobody_is_static_and_everybody_is_mixed():
    assert mixed_capacity(2, 2, RATES, 0) == static_capacity(2, 2, RATES)
    assert mixed_capacity(2, 0, RATES, 2) == 2 * RATES.mixed_per_s


def test_first_come_first_served_leaves_the_residual_of_the_cap_unused():
    lengths, cap = [1000, 700, 600], 2048
    queue = [
        Entry(key=str(rows), num_rows=rows, arrival=place) for place, rows in enumerate(lengths)
    ]
    chosen = POLICIES["phase_pure"].select(
        QueueView(prefills=queue),
        BatchLimits(max_batch_tokens=cap, max_num_seqs=512, prompt_order=PromptOrder.FCFS),
    )
    assert len(chosen) == 2 and sum(rows for _, rows in chosen) == 1700
    assert cap - 1700 == 348 and "600" not in dict(chosen)


@pytest.mark.parametrize(
    ("prompt_pending", "waited_us", "num_passed_over", "phase"),
    [
        (True, 0, 0, "prompt"),
        (True, 50_000, 0, "token"),
        (True, 0, 4, "token"),
        (False, 0, 0, "token"),
    ],
    ids=["a fresh token is preempted", "an aged one runs", "one at the cap runs", "no prompt"],
)
def test_which_phase_a_mixed_machine_runs(prompt_pending, waited_us, num_passed_over, phase):
    token = Entry(key="t", waited_us=waited_us, num_passed_over=num_passed_over)
    limits = BatchLimits(
        max_batch_tokens=2048, max_num_seqs=512, age_override_us=50_000, max_passed_over=4
    )
    assert choose_mixed_phase(prompt_pending, token, limits) == phase
