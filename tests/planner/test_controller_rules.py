"""The controller's decisions: predictions, reasons, hysteresis, and a constant plan."""

import itertools
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.policy.replan import Kind, ReplanState, replan
from baton.policy.replan_predict import (
    Demand,
    decode_batch,
    queue_tail_us,
    tpot_tail_us,
    wait_probability,
)
from baton.policy.replan_signals import PoolSignals, ReplanRules, Signals, WorkerRates

S = 1e6
RATES = WorkerRates(
    decode_step_us=6_000,
    decode_sequence_us=200,
    decode_tokens=1_000_000,
    decode_max_requests=64,
    handoff_us=50_000,
)
RULES = ReplanRules(ttft_us=2 * S, tpot_us=12_000, max_gpus=16, start_us=30 * S, flip_us=3 * S)


def signals(now_s=0.0, load=1.0, per_s=4.0, prefill=None, decode=None, **changes):
    values = {
        "now_us": now_s * S,
        "interval_us": 5 * S,
        "num_arrivals": round(5 * per_s),
        "arrived_us": 5 * S * load,
        "prompt_cv2": 1.0,
        "prompt_tail_us": 600_000,
        "mean_output": 300,
        "mean_context": 4000,
        "prefill": prefill or PoolSignals(ready=2),
        "decode": decode or PoolSignals(ready=1, active=8),
    }
    return Signals(**(values | changes))


def run(state, steps, start_s=0.0, **given):
    """The actions of so many intervals of constant signals, with their times."""
    if not state.seen:  # what the controller has to see before it predicts
        for step in range(1, 6):
            state, decision = replan(state, signals(5.0 * step - 30, **given), RATES, RULES)
            assert decision.actions == () or given.get("ttft_met") is not None
    taken = []
    for step in range(steps):
        now_s = start_s + 5.0 * step
        state, decision = replan(state, signals(now_s, **given), RATES, RULES)
        taken += [(now_s, action) for action in decision.actions]
    return state, taken, decision


@pytest.mark.parametrize(
    ("load", "workers", "expected"),
    [(0.5, 1, 0.5), (1.0, 2, 1 / 3), (2.0, 3, 4 / 9), (0.0, 4, 0.0), (5.0, 3, 1.0)],
)
def test_the_probability_of_waiting_is_erlangs(load, workers, expected):
    assert wait_probability(load, workers) == pytest.approx(expected)


def test_exponential_service_waits_as_the_closed_form_says():
    """M/M/2 at load 1: P(W > t) = 1/3 exp(-(2 mu - lambda) t), with 1 / mu = 100 ms."""
    demand = Demand(requests_per_us=1e-5, prefill_load=1.0)
    tail_us = queue_tail_us(demand, 1.0, 2, 0.9)
    assert math.exp(-tail_us * (2e-5 - 1e-5)) / 3 == pytest.approx(0.1)
    assert queue_tail_us(demand, 1.0, 1, 0.9) == math.inf
    assert queue_tail_us(demand, 1.0, 9, 0.9) == 0.0


def test_a_decode_batch_follows_littles_law():
    demand = Demand(requests_per_us=4e-6, prefill_load=1.0)
    batch = decode_batch(demand, 300, 2, RATES)
    step_us = RATES.decode_step_us + RATES.decode_sequence_us * batch
    assert batch == pytest.approx(2e-6 * 300 * step_us)
    assert decode_batch(demand, 300, 1, msgspec.structs.replace(RATES, decode_sequence_us=900)) == (
        math.inf
    )


def test_memory_and_the_bound_on_sequences_end_a_decode_pool_too():
    demand = Demand(requests_per_us=4e-6, prefill_load=1.0)
    assert tpot_tail_us(demand, 300, 4000, 8, 2, 1.0, RATES) < math.inf
    for changed in ({"decode_tokens": 20_000}, {"decode_max_requests": 4}):
        tight = msgspec.structs.replace(RATES, **changed)
        assert tpot_tail_us(demand, 300, 4000, 8, 2, 1.0, tight) == math.inf


def test_a_pool_that_will_miss_its_target_grows_at_once_and_says_why():
    _, taken, decision = run(ReplanState(), 1, load=3.5)
    starts = [action for _, action in taken]
    assert [(one.kind, one.role) for one in starts] == [(Kind.START, Role.PREFILL)] * len(starts)
    assert 2 + len(starts) == decision.prefill.least >= 4
    assert (
        starts[0].reason.startswith("TTFT p90 predicted") and "of 2000 ms with" in starts[0].reason
    )


def test_workers_under_way_are_not_ordered_twice():
    _, taken, _ = run(ReplanState(), 6, load=3.5, prefill=PoolSignals(ready=2, starting=4))
    assert taken == []


def test_a_backlog_calls_for_help_beyond_the_steady_state():
    calm = run(ReplanState(), 1, load=1.0)[2].prefill.least
    waiting = PoolSignals(ready=2, waiting=40, waiting_us=90 * S)
    _, taken, decision = run(ReplanState(), 1, load=1.0, prefill=waiting)
    assert decision.prefill.least == math.ceil(1.0 + 90 / 40) > calm
    assert "90.0 s of prompts wait" in taken[0][1].reason


def test_a_pool_shrinks_by_one_after_patience_and_rests_in_between():
    _, taken, decision = run(ReplanState(), 60, load=0.3, prefill=PoolSignals(ready=5))
    assert [(one.kind, one.role) for _, one in taken] == [(Kind.DRAIN, Role.PREFILL)] * len(taken)
    times = [time_s for time_s, _ in taken]
    assert times[0] == pytest.approx(120.0)  # since the first moment that enough was seen
    assert all(b - a >= 60 for a, b in itertools.pairwise(times))
    assert f"{decision.prefill.keep} would do for 120 s: TTFT would stay at" in taken[0][1].reason


def test_an_interruption_starts_patience_anew():
    state, taken, _ = run(ReplanState(), 20, load=0.3, prefill=PoolSignals(ready=4))
    state, between, _ = run(state, 8, 100.0, load=2.6, prefill=PoolSignals(ready=4))
    _, later, _ = run(state, 60, 140.0, load=0.3, prefill=PoolSignals(ready=4))
    assert taken == between == []
    assert later[0][0] >= 140.0 + 120.0


def test_a_shrinking_that_is_regretted_doubles_patience():
    """Load that comes back soon after a worker went: the next one stays twice as long."""
    state, waits = ReplanState(), []
    now_s, ready = 0.0, 3
    for _ in range(3):
        begun_s = now_s
        for _ in range(400):
            given = signals(now_s, load=0.3, prefill=PoolSignals(ready=ready))
            state, decision = replan(state, given, RATES, RULES)
            now_s += 5.0
            if decision.actions:
                break
        waits.append(now_s - begun_s)
        busy = PoolSignals(ready=ready - 1, waiting=50, waiting_us=100 * S)
        state, decision = replan(state, signals(now_s, load=2.5, prefill=busy), RATES, RULES)
        assert decision.actions[0].kind is Kind.START
        now_s += 5.0
    assert waits[1] > 1.5 * waits[0] and waits[2] > 1.5 * waits[1]


def test_nothing_is_drained_while_a_worker_starts_or_drains():
    for busy in (PoolSignals(ready=5, starting=1), PoolSignals(ready=5, draining=1)):
        assert run(ReplanState(), 60, load=0.3, prefill=busy)[1] == []


def test_a_worker_that_decode_can_spare_is_flipped_and_not_started():
    idle = PoolSignals(ready=4, active=2)
    state, taken, _ = run(ReplanState(), 20, load=0.8, per_s=1.0, decode=idle)
    assert taken == []
    _, taken, _ = run(state, 1, 100.0, load=10.0, per_s=4.0, decode=idle)
    flips = [one for _, one in taken if one.kind is Kind.FLIP]
    assert flips and all(one.role is Role.DECODE for one in flips)
    assert "decode can spare it, TPOT would stay at" in flips[0].reason
    assert len(flips) <= 3  # one worker stays


def test_a_flip_that_is_no_quicker_than_a_start_is_not_made():
    slow = msgspec.structs.replace(RULES, flip_us=RULES.start_us)
    state, _, _ = run(ReplanState(), 20, load=0.8, per_s=1.0, decode=PoolSignals(ready=4))
    given = signals(100.0, load=10.0, decode=PoolSignals(ready=4))
    _, decision = replan(state, given, RATES, slow)
    assert {one.kind for one in decision.actions} == {Kind.START}


def test_a_budget_that_is_used_up_is_named():
    full = msgspec.structs.replace(RULES, max_gpus=4)
    state = run(ReplanState(), 1, load=6.0, decode=PoolSignals(ready=2))[0]
    _, decision = replan(state, signals(load=6.0, decode=PoolSignals(ready=2)), RATES, full)
    assert decision.actions == ()
    assert decision.note.startswith("prefill needs more, and all 4 GPUs are in use: TTFT p90")


def test_too_little_evidence_changes_nothing():
    state = ReplanState()
    for step in range(5):
        state, decision = replan(state, signals(5.0 * step, load=9.0), RATES, RULES)
        assert decision.actions == () and decision.prefill.reason == "too little was seen yet"


def test_missed_targets_outweigh_a_prediction_that_sees_nothing():
    queued = PoolSignals(ready=2, waiting=9)
    _, taken, _ = run(ReplanState(), 1, load=0.5, prefill=queued, ttft_met=0.4)
    assert [one.reason for _, one in taken] == ["40% met their TTFT, 90% should"]
    assert run(ReplanState(), 1, load=0.5, ttft_met=0.4)[1] == []


def test_prompts_that_no_pool_serves_in_time_do_not_buy_the_whole_budget():
    decision = run(ReplanState(), 1, load=1.0, prompt_tail_us=9 * S)[2]
    assert decision.prefill.least <= 4


@settings(max_examples=30, deadline=None)
@given(
    load=st.floats(0.0, 12.0),
    per_s=st.floats(0.2, 20.0),
    tail_s=st.floats(0.05, 6.0),
    cv2=st.floats(0.0, 9.0),
    output=st.floats(1, 2000),
    ready=st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_constant_load_gives_a_constant_plan(load, per_s, tail_s, cv2, output, ready):
    counts = {Role.PREFILL: ready[0], Role.DECODE: ready[1]}
    state, actions = ReplanState(), []
    for step in range(300):
        given = signals(
            5.0 * step,
            load=load,
            num_arrivals=round(5 * per_s),
            prompt_tail_us=tail_s * S,
            prompt_cv2=cv2,
            mean_output=output,
            prefill=PoolSignals(ready=counts[Role.PREFILL]),
            decode=PoolSignals(ready=counts[Role.DECODE]),
        )
        before = state
        state, decision = replan(state, given, RATES, RULES)
        assert replan(before, given, RATES, RULES)[1] == decision
        for action in decision.actions:
            actions.append((step, action))
            other = Role.DECODE if action.role is Role.PREFILL else Role.PREFILL
            counts[action.role] += 1 if action.kind is Kind.START else -1
            counts[other] += action.kind is Kind.FLIP
        assert min(counts.values()) >= 1
        assert sum(counts.values()) <= max(RULES.max_gpus, sum(ready))
    last = max((step for step, _ in actions), default=0)
    assert last < 220, f"still acting at step {last}: {actions[-3:]}"
    grown = {one.role for _, one in actions if one.kind is Kind.START}
    shrunk = {one.role for _, one in actions if one.kind is Kind.DRAIN}
    assert not grown & shrunk, "a pool grew and shrank under constant load"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttft_us", 0),
        ("tpot_us", math.inf),
        ("shrink_share", 1.0),
        ("start_us", -1),
        ("max_gpus", 1),
    ],
)
def test_rules_without_a_meaning_are_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        msgspec.structs.replace(RULES, **{field: value})
