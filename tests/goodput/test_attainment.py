"""Attainment by phase and jointly, with every rule about the denominator."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.goodput.attainment import judge, judge_each
from baton.goodput.counting import CountAs, Counting
from baton.goodput.interval import NothingToJudge, Sampling, bootstrap_clusters
from baton.goodput.record import Outcome
from baton.goodput.slo import SLOTargets
from tests.goodput.records import record

TARGETS = SLOTargets(ttft_us=200_000, tpot_us=50_000)
FAILED = record(outcome=Outcome.FAILED)
CANCELLED = record(outcome=Outcome.CANCELLED)
GOOD, SLOW_START, SLOW_TOKENS = record(100, 10), record(201, 10), record(100, 51)


def values(attainment):
    return [attainment.ttft.value, attainment.tpot.value, attainment.joint.value]


def test_ten_requests_pass_each_phase_and_fail_jointly():
    attainment = judge([SLOW_START, SLOW_TOKENS] + [GOOD] * 8, TARGETS)
    assert values(attainment) == [0.9, 0.9, 0.8]
    assert attainment.phases_pass and attainment.ttft_passes and attainment.tpot_passes
    assert not attainment.joint_passes
    assert attainment.num_joint_met == 8 and attainment.num_counted == 10


def test_marginals_do_not_tell_the_joint():
    both = msgspec.structs.replace(SLOW_TOKENS, scheduled_us=-200_000)
    apart, together = [SLOW_START, SLOW_TOKENS, GOOD], [both, GOOD, GOOD]
    assert values(judge(apart, TARGETS))[2] == pytest.approx(1 / 3)
    assert values(judge(together, TARGETS)) == pytest.approx([2 / 3] * 3)


def test_a_target_is_met_by_reaching_it_exactly():
    assert values(judge([record(200, 50)], TARGETS)) == [1, 1, 1]
    assert values(judge([record(200.001, 50)], TARGETS)) == [0, 1, 0]
    assert values(judge([record(200, 50.001)], TARGETS)) == [1, 0, 0]


@pytest.mark.parametrize(
    ("records", "counting", "num", "expected"),
    [
        ([GOOD, FAILED], {}, 2, [0.5, 0.5, 0.5]),
        ([GOOD, FAILED], {"failed": CountAs.LEFT_OUT}, 1, [1, 1, 1]),
        ([GOOD, CANCELLED], {}, 1, [1, 1, 1]),
        ([GOOD, CANCELLED], {"cancelled": CountAs.MISSED}, 2, [0.5, 0.5, 0.5]),
        ([record(300, num_tokens=1), GOOD], {}, 2, [0.5, 1, 0.5]),
        ([record(300, num_tokens=1), GOOD], {"single_token": CountAs.LEFT_OUT}, 1, [1, 1, 1]),
        ([record(num_tokens=0), GOOD], {}, 2, [0.5, 0.5, 0.5]),
        ([SLOW_START, record(at_ms=900)], {"num_warmup": 1}, 1, [1, 1, 1]),
        ([record(at_ms=900), SLOW_START], {"num_warmup": 1}, 1, [1, 1, 1]),
        ([SLOW_START, record(at_ms=900)], {"warmup_us": 900_000}, 1, [1, 1, 1]),
        ([SLOW_START, record(at_ms=900)], {"warmup_us": 0}, 2, [0.5, 1, 0.5]),
    ],
)
def test_the_rule_decides_the_denominator(records, counting, num, expected):
    attainment = judge(records, TARGETS, counting=Counting(**counting))
    assert attainment.num_counted == num
    assert values(attainment) == expected


def test_the_classes_count_every_record():
    records = [GOOD, FAILED, CANCELLED, record(num_tokens=1), record(num_tokens=0)]
    late = [msgspec.structs.replace(one, scheduled_us=10) for one in records]
    classes = judge([record(), *late], TARGETS, counting=Counting(num_warmup=1)).classes
    assert msgspec.structs.asdict(classes) == {
        "num_records": 6,
        "num_warmup": 1,
        "num_completed": 3,
        "num_failed": 1,
        "num_cancelled": 1,
        "num_single_token": 1,
        "num_empty": 1,
    }


def test_one_line_says_what_was_divided_by_what():
    line = judge([GOOD, FAILED, CANCELLED], TARGETS, counting=Counting(warmup_us=0)).describe()
    assert "\n" not in line
    for part in (
        "ttft:200 tpot:50 for 0.9 of 2 counted requests over 0.2 s",
        "3 records: 0 warm-up, 1 completed (0 of one token, 0 empty), 1 failed, 1 cancelled",
        "failed missed, cancelled left out, single-token TPOT met",
        "0.95 intervals",
    ):
        assert part in line
    other = Counting(failed=CountAs.LEFT_OUT, warmup_us=500_000, num_warmup=3)
    assert "first 0.5 s left out, first 3 requests left out" in str(other)


def test_goodput_is_what_met_every_target_over_the_time():
    records = [record(100, 10, at_ms=1000 * n) for n in range(10)] + [record(300, 10, at_ms=9800)]
    attainment = judge(records, TARGETS)
    assert attainment.duration_us == 10_200_000
    assert attainment.goodput.value == pytest.approx(10 / 10.2)
    assert judge(records, TARGETS, duration_us=5_000_000).goodput.value == pytest.approx(2)
    assert attainment.goodput.low == pytest.approx(attainment.joint.low * 11 / 10.2)
    warm = judge(records, TARGETS, counting=Counting(num_warmup=5))
    assert warm.goodput.value == pytest.approx(5 / 5.2)
    assert warm.duration_us == 5_200_000


def test_the_end_to_end_target_counts_jointly_too():
    targets = SLOTargets(ttft_us=200_000, e2e_us=250_000)
    attainment = judge([record(100, 10), record(100, 20)], targets)
    assert (attainment.ttft.value, attainment.e2e.value, attainment.joint.value) == (1, 0.5, 0.5)
    assert attainment.tpot is None and not attainment.tpot_passes
    assert set(attainment.phases) == {"ttft", "e2e"}
    assert judge([record(100, 10, tail_ms=51)], targets).e2e.value == 0


@pytest.mark.parametrize(
    ("records", "counting"),
    [([], {}), ([CANCELLED], {}), ([FAILED], {"failed": "left out"}), ([GOOD], {"num_warmup": 1})],
)
def test_nothing_to_judge_says_why(records, counting):
    with pytest.raises(NothingToJudge, match=f"nothing to judge: .*{len(records)} records"):
        judge(records, TARGETS, counting=msgspec.convert(counting, Counting))


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"failed": CountAs.MET}, "failed requests as"),
        ({"cancelled": CountAs.MET}, "cancelled requests as"),
        ({"single_token": CountAs.MISSED}, "single_token requests as"),
        ({"warmup_us": -1}, "warmup_us = -1"),
        ({"num_warmup": -1}, "num_warmup = -1"),
    ],
)
def test_a_rule_that_cannot_be(fields, part):
    with pytest.raises(ConfigError, match=part):
        Counting(**fields)


def test_a_duration_is_positive():
    with pytest.raises(ConfigError, match="duration_us = 0"):
        judge([GOOD], TARGETS, duration_us=0)


RECORDS = st.lists(
    st.builds(
        record,
        st.integers(1, 400),
        st.integers(0, 100),
        num_tokens=st.integers(0, 3),
        at_ms=st.integers(0, 5000),
        outcome=st.sampled_from(Outcome),
    ),
    max_size=30,
)
RULES = st.builds(
    Counting,
    failed=st.sampled_from([CountAs.MISSED, CountAs.LEFT_OUT]),
    cancelled=st.sampled_from([CountAs.MISSED, CountAs.LEFT_OUT]),
    single_token=st.sampled_from([CountAs.MET, CountAs.LEFT_OUT]),
    warmup_us=st.integers(0, 2_000_000),
    num_warmup=st.integers(0, 5),
)


@given(records=RECORDS, rule=RULES, seed=st.randoms())
def test_joint_is_bounded_by_the_phases_and_by_their_overlap(records, rule, seed):
    try:
        attainment = judge(records, TARGETS, counting=rule)
    except NothingToJudge:
        assert judge_each(records, TARGETS, rule) == []
        return
    ttft, tpot, joint = values(attainment)
    assert max(0, ttft + tpot - 1) - 1e-9 <= joint <= min(ttft, tpot)
    assert joint * attainment.num_counted == pytest.approx(attainment.num_joint_met)
    for one in (*attainment.phases.values(), attainment.joint):
        assert 0 <= one.low <= one.value <= one.high <= 1 and one.num == attainment.num_counted
    # The order in which records were collected must not matter, unless the warm-up splits a tie.
    if not rule.num_warmup:
        seed.shuffle(records)
        assert judge(records, TARGETS, counting=rule) == attainment


def test_repetitions_are_judged_whole():
    runs = [[GOOD] * 9 + [SLOW_START], [GOOD] * 5 + [SLOW_TOKENS] * 5, [GOOD] * 8 + [FAILED] * 2]
    met = [[float(one.all) for one in judge_each(run, TARGETS)] for run in runs]
    pooled = bootstrap_clusters(met, Sampling(seed=1))
    assert pooled.value == pytest.approx(22 / 30) and pooled.num == 3
    assert pooled.low == pytest.approx(0.5) and pooled.high == pytest.approx(0.9)
