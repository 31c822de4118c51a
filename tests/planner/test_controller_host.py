"""The controller on the simulated host: constant load, surges, drains, flips, and what is paid."""

import math

import msgspec
import numpy as np
import pytest

from baton.core.ids import Role
from baton.planner.controller.fleet import Fleet
from baton.planner.controller.run import run_controlled, run_static
from baton.planner.controller.scene import dynamo_scene
from baton.policy.replan import Action, Kind
from baton.policy.replan_signals import ReplanRules
from baton.sim.fast import columns as c
from baton.sim.fast.elastic import ElasticSimulation
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

S = 1e6
SCENE = msgspec.structs.replace(dynamo_scene(), route="shortest_queue")
RULES = ReplanRules(ttft_us=1 * S, tpot_us=12_000, max_gpus=10, start_us=30 * S, flip_us=5 * S)


def requests(phases, seed=0, prompt=4000, output=100):
    """Poisson arrivals: (seconds, requests a second) one after another."""
    rng = np.random.Generator(np.random.PCG64(seed))
    times, begin = [], 0.0
    for seconds, rate in phases:
        gaps = rng.exponential(1 / rate, size=math.ceil(seconds * rate * 1.5) + 20)
        at = begin + np.cumsum(gaps)
        times.append(at[at < begin + seconds])
        begin += seconds
    arrival_us = np.concatenate(times) * S
    num = len(arrival_us)
    return FastWorkload(
        arrival_us=arrival_us,
        num_prompt=np.full(num, prompt, np.int64),
        num_output=np.full(num, output, np.int64),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def controlled(workload, *, prefill=2, decode=2, rules=RULES):
    return run_controlled(
        SCENE, workload, rules, num_prefill=prefill, num_decode=decode, interval_us=5 * S
    )


def test_constant_load_settles_and_stays():
    """4 requests a second of 84 ms keep a third of a worker busy; both pools shrink to one."""
    outcome = controlled(requests([(1500, 4.0)]))
    assert outcome.num_completed == outcome.num_requests
    late = [step for step in outcome.steps if step.at_s > 600]
    assert late == []
    assert {step.kind for step in outcome.steps} == {Kind.DRAIN}
    assert outcome.ttft_met > 0.97


def test_a_surge_is_followed_up_and_down_for_less_than_the_static_plan_that_survives_it():
    workload = requests([(400, 3.0), (500, 28.0), (900, 3.0)])
    outcome = controlled(workload)
    peak = run_static(SCENE, workload, RULES, 6, 3)
    small = run_static(SCENE, workload, RULES, 2, 2)
    assert outcome.num_completed == outcome.num_requests
    grown = [step for step in outcome.steps if step.kind in (Kind.START, Kind.FLIP)]
    assert grown and all(400 < step.at_s < 900 for step in grown)
    assert any(step.kind is Kind.DRAIN and step.at_s > 900 for step in outcome.steps)
    assert outcome.gpu_hours < min(0.75 * peak.gpu_hours, small.gpu_hours)
    # Start-up alone lets a queue grow; it is gone long before the surge is.
    assert outcome.ttft_mean_ms < 0.2 * small.ttft_mean_ms
    assert outcome.ttft_met > 0.85 > small.ttft_met
    assert all(step.reason for step in outcome.steps)


def test_equal_runs_are_equal_bit_for_bit():
    workload = requests([(200, 3.0), (200, 20.0)])
    assert controlled(workload) == controlled(workload)


def test_a_fixed_fleet_is_the_static_plan():
    """Rules under which nothing changes: the slices and the closed workers leave no trace."""
    workload = requests([(120, 8.0)])
    deaf = msgspec.structs.replace(
        RULES, ttft_us=1e12, tpot_us=1e12, patience_us=1e12, short_us=1e11, long_us=1e11
    )
    outcome = controlled(workload, rules=deaf)
    static = run_static(SCENE, workload, deaf, 2, 2)
    assert outcome.steps == ()
    for field in ("ttft_mean_ms", "ttft_p99_ms", "tpot_p99_ms", "gpu_hours"):
        assert getattr(outcome, field) == pytest.approx(getattr(static, field), rel=1e-9)


def test_slices_do_not_change_a_simulation():
    workload = requests([(60, 10.0)])
    deployment = SCENE.deployment(2, 2)
    sliced = ElasticSimulation(deployment, workload, [0, 1, 2, 3])
    at_us = 0.0
    while not sliced.run_until(at_us):
        at_us += 0.7 * S
    whole = simulate_fast(deployment, workload)
    for name in ("first_us", "last_us", "prefill_worker", "decode_worker"):
        assert np.array_equal(getattr(sliced.result(), name), getattr(whole, name), equal_nan=True)


def test_a_closed_worker_gets_nothing_new_finishes_and_is_drained():
    workload = requests([(60, 10.0)])
    simulation = ElasticSimulation(SCENE.deployment(2, 2), workload, [0, 1, 2, 3])
    simulation.run_until(20 * S)
    simulation.close(0)
    had = int((simulation.result().prefill_worker == 0).sum())
    assert had > 20 and not simulation.is_drained(2)
    simulation.run_until(40 * S)
    assert simulation.is_drained(0)
    assert int((simulation.result().prefill_worker == 0).sum()) == had
    simulation.end(0, 40 * S)
    simulation.open(0, 40 * S)
    simulation.run_until()
    assert int((simulation.result().prefill_worker == 0).sum()) > had
    assert (simulation.phases == c.ENDED).all()


def test_a_flip_drains_then_serves_the_other_phase_and_every_second_is_paid():
    workload = requests([(100, 4.0)])
    fleet = Fleet(
        {Role.PREFILL: 3, Role.DECODE: 3},
        {Role.PREFILL: 1, Role.DECODE: 2},
        {Role.PREFILL: 1, Role.DECODE: 2},
    )
    simulation = ElasticSimulation(SCENE.deployment(3, 3), workload, fleet.opened)
    simulation.run_until(10 * S)
    fleet.pay(10 * S)
    assert fleet.gpu_us == 10 * S * (1 + 2 * 2)
    fleet.act(Action(kind=Kind.FLIP, role=Role.DECODE, reason="x"), simulation, 40 * S)
    assert fleet.counts() == {Role.PREFILL: (1, 0, 0), Role.DECODE: (1, 0, 1)}
    simulation.run_until(20 * S)
    fleet.pay(20 * S)
    fleet.release_drained(simulation, 20 * S, 5 * S)
    assert fleet.counts() == {Role.PREFILL: (1, 1, 0), Role.DECODE: (1, 0, 0)}
    assert fleet.next_ready_us() == 25 * S
    simulation.run_until(25 * S)
    fleet.make_ready(simulation, 25 * S)
    assert fleet.counts()[Role.PREFILL] == (2, 0, 0)
    assert fleet.gpu_us == 10 * S * 5 + 10 * S * 5
    simulation.run_until()
    assert simulation.result().is_completed.all()


def test_work_of_a_prompt_is_what_an_idle_worker_takes():
    lengths = np.array([16, 4000, 20_000], np.int64)
    times = SCENE.prompt_us(lengths) / 1e3
    expected = 16.50142 + 0.01518344 * lengths + 4.209989e-7 * lengths * (lengths + 1.0)
    expected[2] += 2 * 16.50142  # two more chunks
    assert times == pytest.approx(expected, rel=2e-3)


def test_decode_rates_are_the_line_through_its_steps():
    rates = SCENE.rates(4000.0)
    for num in (1, 8, 16):
        step_us = SCENE.decode.curves.step_us([], [4000] * num)
        assert rates.decode_step_us + num * rates.decode_sequence_us == pytest.approx(step_us)
