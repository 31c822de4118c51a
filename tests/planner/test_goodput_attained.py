"""Attainment from arrays against the record-by-record rule, and what counts."""

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.goodput.attainment import judge
from baton.goodput.counting import CountAs, Counting
from baton.goodput.interval import NothingToJudge
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.slo import SLOTargets
from baton.planner.goodput.attained import WHOLE, Rule, TpotDefinition, attain, inflation, met
from baton.sim.fast.result import End, FastResult, Workers

TARGETS = SLOTargets(ttft_us=100, tpot_us=10, e2e_us=400)


def result(rows):
    """Rows of (arrival, first, last, tokens, end)."""
    arrival, first, last, tokens, end = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), np.int64)
    nan = np.full(len(rows), np.nan)
    one = np.zeros(1, np.int64)
    workers = Workers(
        names=("one",),
        busy_us=np.zeros(1),
        num_steps=one,
        num_extrapolated=one,
        num_rows=one,
        peak_tokens=one,
    )
    return FastResult(
        arrival_us=arrival.astype(float),
        num_prompt=none + 1,
        num_output=tokens.astype(np.int64),
        end=end.astype(np.int8),
        first_us=first.astype(float),
        last_us=last.astype(float),
        prefill_start_us=nan,
        prefill_end_us=nan,
        moved_us=nan,
        num_cached=none,
        num_moved=none,
        num_preempted=none,
        prefill_worker=none,
        decode_worker=none,
        workers=workers,
        gap_edges_us=np.array([0.0, 1.0]),
        gap_counts=one,
        duration_us=1.0,
        num_events=0,
    )


def record(index, row):
    arrival, first, last, tokens, end = row
    times = () if np.isnan(first) else (int(first), *[int(last)] * (tokens - 1))
    done = end == End.COMPLETED
    return RequestRecord(
        request_id=str(index),
        scheduled_us=arrival,
        sent_us=arrival,
        token_times_us=times,
        end_us=0 if np.isnan(last) else int(last),
        num_prompt_tokens=1,
        num_output_tokens=tokens,
        outcome=Outcome.COMPLETED if done else Outcome.FAILED,
    )


def random_rows(num, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(num):
        first = index * 50 + int(rng.integers(20, 160))
        tokens = int(rng.integers(1, 40))
        last = first + (tokens - 1) * int(rng.integers(5, 14))
        end = End.COMPLETED if rng.random() < 0.9 else End.REJECTED
        if end is End.REJECTED:
            rows.append((index * 50, np.nan, np.nan, 0, end))
        else:
            rows.append((index * 50, first, last, tokens, end))
    return rows


@pytest.mark.parametrize("single", [CountAs.MET, CountAs.LEFT_OUT])
@pytest.mark.parametrize("failed", [CountAs.MISSED, CountAs.LEFT_OUT])
def test_arrays_are_judged_as_records_are(single, failed):
    rows = random_rows(300, 1)
    rule = Rule(warmup_share=0.1, cooldown_share=0.0, failed=failed, single_token=single)
    found = attain(result(rows), TARGETS, rule)
    judged = judge(
        [record(index, row) for index, row in enumerate(rows)],
        TARGETS,
        counting=Counting(failed=failed, single_token=single, num_warmup=30),
        duration_us=1,
    )
    assert found.num_counted == judged.num_counted
    assert found.num_joint == judged.num_joint_met
    assert found.shares == {name: one.value for name, one in judged.phases.items()}
    assert found.joint == judged.joint.value


def test_joint_is_counted_and_not_derived():
    rows = [(0, 50, 50 + 9 * 5, 10, End.COMPLETED)] * 8
    rows += [(0, 150, 195, 10, End.COMPLETED), (0, 50, 50 + 9 * 20, 10, End.COMPLETED)]
    found = attain(result(rows), SLOTargets(ttft_us=100, tpot_us=10), WHOLE)
    assert (found.shares["ttft"], found.shares["tpot"], found.joint) == (0.9, 0.9, 0.8)
    assert found.phases == 0.9 and found.joint <= min(found.shares.values())


@pytest.mark.parametrize("seed", range(20))
def test_joint_never_exceeds_a_clock(seed):
    found = attain(result(random_rows(200, seed)), TARGETS, Rule())
    assert found.joint <= min(found.shares.values())
    assert found.shares[found.binding] == found.phases


def test_what_is_unfinished_or_too_large_missed():
    rows = [
        (0, 10, 10, 1, End.COMPLETED),
        (0, 10, np.nan, 3, End.OPEN),
        (0, np.nan, np.nan, 0, End.TOO_LARGE),
        (0, np.nan, np.nan, 0, End.FAILED),
    ]
    found = attain(result(rows), TARGETS, WHOLE)
    assert (found.num_counted, found.num_joint, found.num_ttft) == (4, 1, 1)


def test_the_definition_of_tpot_is_part_of_the_rule():
    rows = [(0, 0, 22, 3, End.COMPLETED)]
    targets = SLOTargets(tpot_us=10)
    assert attain(result(rows), targets, WHOLE).shares == {"tpot": 0.0}
    per_token = Rule(warmup_share=0, cooldown_share=0, tpot=TpotDefinition.PER_TOKEN)
    assert attain(result(rows), targets, per_token).shares == {"tpot": 1.0}


def test_nothing_to_count_and_rules_that_mean_nothing():
    only_failed = result([(0, np.nan, np.nan, 0, End.FAILED)])
    left_out = Rule(warmup_share=0, cooldown_share=0, failed=CountAs.LEFT_OUT)
    with pytest.raises(NothingToJudge, match="no request of 1 counts"):
        met(only_failed, TARGETS, left_out)
    with pytest.raises(ConfigError, match="leave nothing to count"):
        Rule(warmup_share=0.5, cooldown_share=0.5)
    with pytest.raises(ConfigError, match="failed ones are missed or left out"):
        Rule(failed=CountAs.MET)


def test_neighbours_that_are_late_together_say_less():
    rng = np.random.default_rng(0)
    independent = rng.random(4000) < 0.9
    together = np.repeat(rng.random(40) < 0.9, 100)
    assert inflation(independent) < 3
    assert inflation(together) > 20
    assert inflation(np.ones(100, bool)) == 1
