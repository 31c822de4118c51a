"""Closed forms beside the simulator: where they hold, and where lengths break them (0x08B)."""

import numpy as np
import pytest

from baton.core.ids import Role
from baton.goodput.queueing import (
    inter_op_ttft_s,
    mean_wait_s,
    single_ttft_s,
    variation,
)
from baton.hardware.curves import StepCurves, StepSide
from baton.planner.goodput.draws import Draws, draw
from baton.sim.fast.deployment import Deployment, WorkerGroup
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

SERVICE_S = 0.1
TOKENS = 1000
"""That take SERVICE_S, at the same time for each."""
NUM = 20_000


def trace(lengths):
    num = len(lengths)
    return FastWorkload(
        arrival_us=np.arange(num) * 1e6,
        num_prompt=np.asarray(lengths, np.int64),
        num_output=np.ones(num, np.int64),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def server(stages=1):
    """One prompt at a time; each token takes SERVICE_S / TOKENS, over equal stages."""
    token_us = SERVICE_S / TOKENS * 1e6 / stages
    side = StepSide(pair_us=0.0, gathered_us=token_us)
    curves = StepCurves(sides=(side,), source="proportional to tokens", pipeline=stages)
    group = WorkerGroup(
        name="server",
        role=Role.MIXED,
        num_workers=1,
        curves=curves,
        kv_tokens=10**9,
        batch_policy="prefill_first",
        max_batch_tokens=1,
        max_num_seqs=stages,
        keeps_prefixes=False,
    )
    return Deployment(groups=(group,))


def mean_ttft_s(lengths, rate, deployment, seeds=(0, 1, 2)):
    means = []
    for seed in seeds:
        result = simulate_fast(deployment, draw(trace(lengths), NUM, seed, Draws()).at_rate(rate))
        assert result.is_completed.all()
        means.append(result.ttft_us[NUM // 10 :].mean() / 1e6)
    return float(np.mean(means))


@pytest.mark.parametrize("rate", [1.0, 5.0, 8.0])
def test_equal_prompts_wait_as_the_deterministic_form_says(rate):
    measured = mean_ttft_s([TOKENS], rate, server())
    assert measured == pytest.approx(single_ttft_s(rate, SERVICE_S), rel=0.04)


def test_two_stages_serve_beyond_the_single_ones_end():
    measured = mean_ttft_s([TOKENS], 14.0, server(stages=2))
    # The paper's wait is that of one stage; the second stage never waits for equal requests.
    assert measured == pytest.approx(inter_op_ttft_s(14.0, SERVICE_S), rel=0.05)


def test_heavy_tails_wait_longer_than_their_mean_and_as_long_as_their_second_moment():
    lengths = np.array([200] * 8 + [4200] * 2)
    assert lengths.mean() == TOKENS
    service = lengths * SERVICE_S / TOKENS
    moment = float((service**2).mean())
    assert variation(SERVICE_S, moment) == pytest.approx(3.56)
    measured = mean_ttft_s(lengths, 5.0, server())
    assert measured == pytest.approx(SERVICE_S + mean_wait_s(5.0, SERVICE_S, moment), rel=0.06)
    assert measured > 1.7 * single_ttft_s(5.0, SERVICE_S), "one mean length is far off"
