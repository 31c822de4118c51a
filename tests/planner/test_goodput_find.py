"""The search for the highest rate, against a queue whose answer is known."""

import math

import numpy as np
import pytest
from tests.planner.lindley import Lindley

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.goodput.search import Bound
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean, student_quantile
from baton.hardware.curves import StepCurves, StepSide
from baton.planner.goodput import Arrivals, Draws, Lengths, Rule, attain, draw, find_goodput
from baton.planner.goodput.answer import Length
from baton.planner.goodput.attained import summed
from baton.planner.goodput.find import Settings
from baton.planner.goodput.precision import needed, noise
from baton.sim.fast.deployment import Deployment, WorkerGroup
from baton.sim.fast.workload import FastWorkload

SERVICE_S = 0.1
TTFT_S = 0.3


def workload(num=1):
    return FastWorkload(
        arrival_us=np.arange(num) * 1e6,
        num_prompt=np.full(num, 100),
        num_output=np.full(num, 5),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def deployment(gpus=2):
    curves = StepCurves(sides=(StepSide(step_us=1.0),), source="a queue stands in its place")
    group = WorkerGroup(
        name="one", role=Role.MIXED, num_workers=1, curves=curves, kv_tokens=1000, gpus=gpus
    )
    return Deployment(groups=(group,))


def server(service_s=SERVICE_S, gap_us=0.0):
    return Lindley(lambda prompts: np.full(len(prompts), service_s * 1e6), gap_us)


def exact_goodput(share=0.9):
    """M/D/1: Erlang's distribution of the wait, at a service time less than the target."""

    def waits_less(load, wait_s):
        rate = load / SERVICE_S
        terms = range(int(wait_s / SERVICE_S + 1e-9) + 1)
        return (1 - load) * sum(
            math.exp(-rate * (k * SERVICE_S - wait_s))
            * (rate * (k * SERVICE_S - wait_s)) ** k
            / math.factorial(k)
            for k in terms
        )

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if waits_less(middle, TTFT_S - SERVICE_S) >= share:
            low = middle
        else:
            high = middle
    return low / SERVICE_S


TARGETS = SLOTargets(ttft_us=round(TTFT_S * 1e6))


def test_the_answer_of_a_queue_is_its_analytic_goodput():
    found = find_goodput(
        deployment(), workload(), TARGETS, relative_precision=0.02, simulate=server()
    )
    assert found.rate.value == pytest.approx(exact_goodput(), rel=0.03)
    assert found.rate.low <= exact_goodput() <= found.rate.high
    assert found.binding == "ttft" and found.bound is Bound.FOUND
    assert found.per_gpu.value == pytest.approx(found.rate.value / 2)


def test_equal_seeds_give_equal_answers_and_other_seeds_other_ones():
    one = find_goodput(deployment(), workload(), TARGETS, simulate=server())
    same = find_goodput(deployment(), workload(), TARGETS, simulate=server())
    other = find_goodput(deployment(), workload(), TARGETS, seeds=(7, 8, 9), simulate=server())
    assert one == same
    assert [probe.attained for probe in one.probes] != [probe.attained for probe in other.probes]


def test_every_seeds_rate_passed_and_the_next_one_of_the_grid_failed():
    found = find_goodput(deployment(), workload(), TARGETS, simulate=server())
    num = found.requests.per_seed
    probes = {
        (one.seed, one.rate_per_s): one.attained for one in found.probes if one.num_requests == num
    }
    for seed in found.seeds:
        assert seed.failing_rate_per_s / seed.rate_per_s == pytest.approx(1.05)
        assert probes[seed.seed, seed.rate_per_s].phases >= 0.9
        assert probes[seed.seed, seed.failing_rate_per_s].phases < 0.9
    assert found.at_rate.phases >= 0.9


def test_the_rate_is_that_of_all_seeds_together():
    found = find_goodput(deployment(), workload(), TARGETS, simulate=server())
    num = found.requests.per_seed

    def share(rate):
        parts = [attain(one, TARGETS, Rule()) for one in runs(rate, num, (0, 1, 2))]
        return summed(parts).phases

    assert found.at_rate.phases == share(found.rate.value) >= 0.9 > share(1.05 * found.rate.value)


def test_all_of_the_requests_means_those_of_every_seed():
    every = SLOTargets(ttft_us=TARGETS.ttft_us, attainment=1.0)
    found = find_goodput(deployment(), workload(), every, num_requests=300, simulate=server())
    assert found.at_rate.phases == 1.0
    assert found.rate.value == pytest.approx(min(one.rate_per_s for one in found.seeds))


def runs(rate, num, seeds):
    drawn = [draw(workload(), num, seed, Draws()).at_rate(rate) for seed in seeds]
    return [server()(deployment(), one) for one in drawn]


@pytest.mark.parametrize("ttft_s", [1.0, 10.0])
def test_runs_are_long_enough_for_a_queue_to_grow(ttft_s):
    """Requests may wait a hundred times their service: a short run is over before any is late."""
    targets = SLOTargets(ttft_us=round(ttft_s * 1e6))
    found = find_goodput(
        deployment(), workload(), targets, relative_precision=0.02, simulate=server()
    )
    assert found.length is Length.SETTLED
    for factor, holds in ((0.97, True), (1.1, False)):
        long = runs(factor * found.rate.value, 10 * found.requests.per_seed, (11, 12))
        share = summed([attain(one, targets, Rule()) for one in long]).phases
        assert (share >= 0.9) == holds


def test_too_few_requests_that_were_asked_for_are_said_to_be_too_few():
    targets = SLOTargets(ttft_us=10_000_000)
    found = find_goodput(deployment(), workload(), targets, num_requests=800, simulate=server())
    assert found.requests.per_seed == 800 and found.length is Length.UNSETTLED


def test_no_rate_is_simulated_twice_with_one_seed():
    queue = server()
    found = find_goodput(deployment(), workload(), TARGETS, num_requests=500, simulate=queue)
    rates = [(one.seed, one.num_requests, one.rate_per_s) for one in found.probes]
    assert len(rates) == len(set(rates))
    assert queue.num_calls == len(rates) + 1, "and one of all requests at once"


def test_finer_precision_needs_more_requests_and_says_why():
    coarse, fine = (
        find_goodput(
            deployment(), workload(), TARGETS, relative_precision=precision, simulate=server()
        ).requests
        for precision in (0.1, 0.03)
    )
    assert fine.per_seed > 5 * coarse.per_seed
    assert "e-fold of the rate" in str(fine) and str(fine.for_precision) in str(fine)


def test_a_trace_that_is_too_short_is_refused_with_the_number():
    draws = Draws(arrivals=Arrivals.POISSON, lengths=Lengths.TRACE)
    with pytest.raises(ConfigError, match=r"has 450 requests, \d+ requests for each of 3 seeds"):
        find_goodput(
            deployment(),
            workload(450),
            TARGETS,
            relative_precision=0.02,
            draws=draws,
            simulate=server(),
        )


def test_targets_that_no_rate_meets_name_the_clock():
    found = find_goodput(deployment(), workload(), TARGETS, simulate=server(service_s=0.4))
    assert (found.bound, found.rate.value, found.binding) == (Bound.LOWEST_FAILS, 0.0, "ttft")
    both = SLOTargets(ttft_us=300_000, tpot_us=50_000)
    slow = find_goodput(deployment(), workload(), both, simulate=server(gap_us=60_000))
    assert (slow.rate.value, slow.binding) == (0.0, "tpot")


def test_the_joint_contract_is_the_stricter_one():
    both = SLOTargets(ttft_us=300_000, e2e_us=310_000)
    # Tokens after the first take 20 ms, so e2e misses requests that wait 190 ms and more.
    phases, joint = (
        find_goodput(deployment(), workload(), both, contract=name, simulate=server(gap_us=5000))
        for name in ("phases", "joint")
    )
    assert joint.rate.value <= phases.rate.value


def test_a_candidate_that_cannot_win_is_dropped_after_a_pilot():
    queue = server()
    found = find_goodput(deployment(), workload(), TARGETS, incumbent_per_s=9.0, simulate=queue)
    assert found.is_pruned and found.rate.high == 9.0 and queue.num_calls == 1
    kept = find_goodput(deployment(), workload(), TARGETS, incumbent_per_s=5.0, simulate=server())
    assert not kept.is_pruned


def test_too_few_requests_to_overload_are_said_to_be_too_few():
    found = find_goodput(
        deployment(), workload(), SLOTargets(ttft_us=10**9), num_requests=50, simulate=server()
    )
    assert found.bound is Bound.HIGHEST_PASSES and found.rate.high == math.inf
    grown = find_goodput(deployment(), workload(), SLOTargets(ttft_us=10**8), simulate=server())
    assert grown.bound is Bound.FOUND and grown.rate.value == pytest.approx(10, rel=0.2)


def test_settings_that_give_no_interval_are_refused():
    with pytest.raises(ConfigError, match="at least 3 different"):
        Settings(targets=TARGETS, seeds=(1, 1, 2))
    with pytest.raises(ConfigError, match="relative_precision"):
        Settings(targets=TARGETS, relative_precision=0.0)


def test_request_counts_follow_noise_and_duration():
    short = needed(
        target=0.9,
        slope=1.0,
        inflation=1.0,
        relative_precision=0.05,
        num_seeds=3,
        counted_share=1.0,
        rate_per_s=1.0,
        residence_s=1.0,
    )
    assert short.for_precision == math.ceil(0.09 * (1.959964 / 0.05) ** 2 / 3)
    assert noise(0.9, 3 * short.for_precision, 1.0) <= 0.05
    longer = needed(
        target=0.9,
        slope=1.0,
        inflation=1.0,
        relative_precision=0.05,
        num_seeds=3,
        counted_share=1.0,
        rate_per_s=20.0,
        residence_s=15.0,
    )
    assert longer.per_seed == longer.for_duration == 3000


@pytest.mark.parametrize(
    ("freedoms", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216)]
)
def test_student_quantiles(freedoms, quantile):
    assert student_quantile(0.975, freedoms) == pytest.approx(quantile, rel=0.004)


def test_the_interval_of_three_repetitions():
    found = student_mean([1.0, 2.0, 3.0])
    assert (found.value, found.num) == (2.0, 3)
    assert found.high - found.value == pytest.approx(4.30265 / math.sqrt(3), rel=1e-4)
