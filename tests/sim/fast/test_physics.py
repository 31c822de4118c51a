"""What links and queues have to do, each with the answer that a formula gives."""

import csv
from functools import cache

import numpy as np
import pytest
from tests.data import data_file

from baton.core.ids import Role, Schedule
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.sim.fast.deployment import Deployment, Handoff, Topology, WorkerGroup
from baton.sim.fast.result import FastResult
from baton.sim.fast.routes import ROUTE_CODES
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

TOKEN_NBYTES, NUM_LAYERS = 131_072, 32
LINK_BYTES_PER_US = 500.0
EACH_ITS_OWN = 1e9
PROMPT_US, ROW_US = 4_000.0, 30.0
CURVES = StepCurves(
    sides=(
        StepSide(
            prefill_us=PROMPT_US,
            prefill_rows=Line(knots=(0.0, 1000.0), values_us=(0.0, 1000.0 * ROW_US)),
            decode_us=5_000.0,
            decode_row_us=10.0,
        ),
    ),
    source="made up: affine in rows",
)


def workload(
    arrival_us: np.ndarray, num_prompt: np.ndarray, num_output: np.ndarray | int
) -> FastWorkload:
    count = len(arrival_us)
    return FastWorkload(
        arrival_us=np.asarray(arrival_us, np.float64),
        num_prompt=np.asarray(num_prompt, np.int64),
        num_output=np.broadcast_to(np.int64(num_output), count).copy()
        if np.isscalar(num_output)
        else np.asarray(num_output, np.int64),
        hash_offsets=np.zeros(count + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


@cache
def conversation(rate: float, count: int) -> FastWorkload:
    """Lengths of the Azure conversation trace, Poisson arrivals: W1."""
    path = data_file("bench-inputs/azconv_poisson_r1_n10000.csv")
    with path.open() as stream:
        rows = [row for row, _ in zip(csv.DictReader(stream), range(count), strict=False)]
    return workload(
        np.array([float(row["arrival_s"]) for row in rows]) * 1e6 / rate,
        np.array([int(row["prompt_tokens"]) for row in rows]),
        np.array([max(1, int(row["output_tokens"])) for row in rows]),
    )


def split(route: str = "shortest_queue", schedule: Schedule = Schedule.LAYER, **links: float):
    def group(name: str, role: Role) -> WorkerGroup:
        return WorkerGroup(name=name, role=role, num_workers=4, curves=CURVES, kv_tokens=4_000_000)

    return Deployment(
        groups=(group("prefill", Role.PREFILL), group("decode", Role.DECODE)),
        handoff=Handoff(token_nbytes=TOKEN_NBYTES, num_layers=NUM_LAYERS, schedule=schedule),
        topology=Topology(latency_us=0.0, **links),
        route=route,
    )


def last_moved_us(result: FastResult, load: FastWorkload, worker: int) -> float:
    """When a link that never rests while something waits has sent all of it (Lindley).

    Whatever shares it fairly or not, the last busy period ends when the bytes of the requests
    since its begin are through.
    """
    mine = np.flatnonzero(result.prefill_worker == worker)
    mine = mine[np.argsort(result.prefill_end_us[mine], kind="stable")]
    send_us = load.num_prompt[mine] * TOKEN_NBYTES / LINK_BYTES_PER_US
    left_us = np.cumsum(send_us[::-1])[::-1]
    return float(np.max(result.prefill_end_us[mine] + left_us))


def test_an_oversubscribed_link_queues_by_what_is_offered_beyond_its_rate():
    """16 requests/s of 150 MB each over four links of 0.5 GB/s: 12 to 15 s behind after 62 s."""
    load = conversation(16.0, 1000)
    links = {"egress_bytes_per_us": LINK_BYTES_PER_US, "ingress_bytes_per_us": EACH_ITS_OWN}
    result = simulate_fast(split(schedule=Schedule.REQUEST, **links), load)
    assert result.is_completed.all()
    assert (result.num_moved == load.num_prompt).all()
    arrived_us = load.arrival_us[-1]
    for worker in range(4):
        expected_us = last_moved_us(result, load, worker)
        mine = result.prefill_worker == worker
        assert np.nanmax(result.moved_us[mine]) == pytest.approx(expected_us, rel=1e-9)
        offered_us = load.num_prompt[mine].sum() * TOKEN_NBYTES / LINK_BYTES_PER_US
        backlog_us = np.nanmax(result.moved_us[mine]) - arrived_us
        assert backlog_us == pytest.approx(offered_us - arrived_us, abs=1.5e6)
        assert 11e6 < backlog_us < 17e6
    alone_us = load.num_prompt.max() * TOKEN_NBYTES / LINK_BYTES_PER_US
    late = result.moved_us[-40:] - result.prefill_end_us[-40:]
    assert np.max(late) > 5 * alone_us, "a peer that sends each transfer alone shows 1.2 s"


def test_a_link_below_its_rate_is_the_same_for_the_fabric_and_for_receivers():
    """One fabric of four times the rate, or four ingresses, carry the same offered bytes."""
    load = conversation(16.0, 1000)
    ends = []
    for bound in ("egress", "ingress", "fabric"):
        links = {f"{one}_bytes_per_us": EACH_ITS_OWN for one in ("egress", "ingress")}
        factor = 4.0 if bound == "fabric" else 1.0
        links[f"{bound}_bytes_per_us"] = factor * LINK_BYTES_PER_US
        result = simulate_fast(split(schedule=Schedule.REQUEST, **links), load)
        ends.append(np.nanmax(result.moved_us))
    total_us = load.num_prompt.sum() * TOKEN_NBYTES / (4 * LINK_BYTES_PER_US)
    assert ends[2] == pytest.approx(total_us, rel=0.01), "one link is never idle once it is behind"
    assert ends[0] >= ends[2] and ends[1] >= ends[2]


@pytest.mark.parametrize("rate", [300.0, 5_000.0, 25_000.0])
def test_layers_hide_what_the_recurrence_hides(rate):
    """v_l = max(r_l, v_(l-1)) + x_l for one prompt; whole prompts leave after the last layer."""
    load = workload(np.array([0.0]), np.array([2000]), 2)
    links = {"egress_bytes_per_us": rate, "ingress_bytes_per_us": EACH_ITS_OWN}
    layered = simulate_fast(split(**links), load)
    whole = simulate_fast(split(schedule=Schedule.REQUEST, **links), load)
    layer_us = 2000 * TOKEN_NBYTES / NUM_LAYERS / rate
    begin, end = layered.prefill_start_us[0], layered.prefill_end_us[0]
    visible = 0.0
    for layer in range(NUM_LAYERS):
        visible = max(begin + (layer + 1) / NUM_LAYERS * (end - begin), visible) + layer_us
    assert layered.moved_us[0] == pytest.approx(visible, rel=1e-12)
    assert whole.moved_us[0] == pytest.approx(whole.prefill_end_us[0] + NUM_LAYERS * layer_us)


def one_queue(arrival_us: np.ndarray, num_prompt: np.ndarray) -> FastResult:
    """One worker that computes one prompt after the other, each in one step; nothing else."""
    group = WorkerGroup(
        name="alone",
        role=Role.MIXED,
        num_workers=1,
        curves=CURVES,
        kv_tokens=4_000_000,
        max_num_seqs=1,
        max_batch_tokens=16_384,
    )
    return simulate_fast(Deployment(groups=(group,)), workload(arrival_us, num_prompt, 1))


def test_heavy_tails_wait_longer_than_their_mean():
    """M/G/1 by Pollaczek and Khinchine, with the second moment of the service times; M/D/1 of the
    mean misses the variance, which is what planners with one length do."""
    rng, count, utilization = np.random.default_rng(11), 120_000, 0.6
    num_prompt = np.minimum(np.exp(rng.normal(6.2, 1.0, count)).astype(np.int64) + 1, 16_000)
    service_us = PROMPT_US + ROW_US * num_prompt
    rate = utilization / service_us.mean()
    arrival_us = np.cumsum(rng.exponential(1.0 / rate, count))
    result = one_queue(arrival_us, num_prompt)
    waited_us = result.ttft_us - service_us
    free_us, lindley_us = 0.0, np.empty(count)
    for k in range(count):
        begin_us = max(free_us, arrival_us[k])
        lindley_us[k], free_us = begin_us - arrival_us[k], begin_us + service_us[k]
    np.testing.assert_allclose(waited_us, lindley_us, atol=1e-3)
    khinchine_us = rate * (service_us**2).mean() / (2 * (1 - utilization))
    constant_us = rate * service_us.mean() ** 2 / (2 * (1 - utilization))
    assert waited_us.mean() == pytest.approx(khinchine_us, rel=0.05)
    assert waited_us.mean() > 1.9 * constant_us
    mean = np.full(count, num_prompt.mean().round(), np.int64)
    steady = one_queue(arrival_us, mean)
    steady_us = steady.ttft_us - (PROMPT_US + ROW_US * mean)
    assert steady_us.mean() == pytest.approx(constant_us, rel=0.03)


@pytest.mark.parametrize("route", ROUTE_CODES)
def test_equal_seeds_give_equal_results_bit_for_bit(route):
    load = conversation(12.0, 400)
    first, second = (simulate_fast(split(route), load) for _ in range(2))
    for name in ("first_us", "last_us", "moved_us", "prefill_worker", "decode_worker"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.num_events == second.num_events
    assert first.is_completed.all()


@pytest.mark.parametrize("route", ROUTE_CODES)
def test_no_route_knows_how_long_an_answer_will_be(route):
    """Two workloads that differ in answers alone: routes agree until the first answer has ended."""
    load = conversation(16.0, 400)
    outputs = 60 + load.num_output % 400
    same = [
        simulate_fast(split(route), workload(load.arrival_us, load.num_prompt, one))
        for one in (outputs, outputs[::-1].copy())
    ]
    ended_us = min(np.nanmin(result.last_us) for result in same)
    before = load.arrival_us < ended_us
    assert before.sum() >= 5
    for name in ("prefill_worker", "decode_worker"):
        first, second = (getattr(result, name)[before] for result in same)
        np.testing.assert_array_equal(first, second)
