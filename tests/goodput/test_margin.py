"""The net margin of disaggregation, and what a deployment's GPUs give."""

import pytest

from baton.errors import ConfigError
from baton.goodput.attainment import judge
from baton.goodput.capacity import PhaseCapacity, goodput_per_gpu, system_goodput
from baton.goodput.margin import (
    FailureCost,
    NetMargin,
    decide,
    decide_measured,
    failure_penalty_us,
)
from baton.goodput.slo import SLOTargets
from tests.goodput.records import record


def margin(exposed: float) -> NetMargin:
    return NetMargin(
        interference_saved_us=30,
        exposed_transfer_us=exposed,
        route_delta_us=2,
        failure_penalty_us=1,
    )


def test_a_fast_link_enables_and_a_slow_one_disables():
    fast, slow = margin(8), margin(45)
    assert (fast.delta_us, slow.delta_us) == (19, -18)
    assert decide(fast, 5, ttft_passes=True, tpot_passes=True).enable
    verdict = decide(slow, 5, ttft_passes=True, tpot_passes=True)
    assert not verdict.enable
    assert verdict.reasons == ("net margin -18 us does not exceed the safety margin of 5 us",)


def test_the_safety_margin_must_be_exceeded():
    assert not decide(margin(8), 19, ttft_passes=True, tpot_passes=True).enable
    assert decide(margin(8), 18.999, ttft_passes=True, tpot_passes=True).enable


@pytest.mark.parametrize(
    ("ttft", "tpot", "words"),
    [(False, True, ["TTFT"]), (True, False, ["TPOT"]), (False, False, ["TTFT", "TPOT"])],
)
def test_no_margin_outweighs_a_missed_gate(ttft, tpot, words):
    verdict = decide(margin(0), 0, ttft_passes=ttft, tpot_passes=tpot)
    assert not verdict.enable
    assert [reason.split()[0] for reason in verdict.reasons] == words


def test_the_gates_come_from_a_measured_attainment():
    targets = SLOTargets(ttft_us=200_000, tpot_us=50_000)
    good, late = record(100, 10), record(300, 10)
    assert decide_measured(margin(8), 5, judge([good] * 9 + [late], targets)).enable
    verdict = decide_measured(margin(8), 5, judge([good] * 8 + [late] * 2, targets))
    assert not verdict.enable and not verdict.ttft_passes and verdict.tpot_passes
    with pytest.raises(ConfigError, match="lack a TTFT or a TPOT"):
        decide_measured(margin(8), 5, judge([good], SLOTargets(ttft_us=1)))


def test_failures_cost_what_they_cost_as_often_as_they_happen():
    costs = [
        FailureCost(kind="retry", frequency=0.01, cost_us=50_000),
        FailureCost(kind="recompute", frequency=0.001, cost_us=400_000),
    ]
    assert failure_penalty_us(costs) == pytest.approx(900)
    assert failure_penalty_us([]) == 0
    with pytest.raises(ConfigError, match="'reroute'"):
        failure_penalty_us([FailureCost(kind="reroute", frequency=-1, cost_us=1)])


def test_figures_that_cannot_be():
    with pytest.raises(ConfigError, match="exposed_transfer_us = -1"):
        margin(-1)
    for safety in (-1, float("nan")):
        with pytest.raises(ConfigError, match="safety_margin_us = "):
            decide(margin(8), safety, ttft_passes=True, tpot_passes=True)


def test_the_slow_phase_and_every_gpu_decide():
    prefill = PhaseCapacity(goodput_per_s=5.6, num_instances=2, gpus_per_instance=1)
    decode = PhaseCapacity(goodput_per_s=10, num_instances=1, gpus_per_instance=1)
    assert system_goodput(prefill, decode) == system_goodput(decode, prefill) == 5.6
    assert goodput_per_gpu(prefill, decode) == pytest.approx(5.6 / 3)
    with pytest.raises(ConfigError, match="num_instances = 0"):
        PhaseCapacity(goodput_per_s=1, num_instances=0, gpus_per_instance=1)
    with pytest.raises(ConfigError, match="goodput_per_s = nan"):
        PhaseCapacity(goodput_per_s=float("nan"), num_instances=1, gpus_per_instance=1)
