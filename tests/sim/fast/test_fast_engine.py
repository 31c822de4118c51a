"""Workers that queue, choose ahead and preempt as vLLM does, against its loop written out."""

import msgspec
import numpy as np
import pytest
from tests.sim.fast.engine_loop import EngineLoop

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.policy.phase_cost import PrefillRows
from baton.sim.fast.deployment import Deployment, WorkerGroup
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

SIDE = StepSide(
    step_us=3000.0, pair_us=0.004, gathered_us=0.1, decode_row_us=30.0, decode_token_us=0.2,
    rows=Line(knots=(0.0, 256.0, 4096.0), values_us=(0.0, 2560.0, 153_600.0)),
)  # fmt: skip
CURVES = StepCurves(sides=(SIDE,), source="a law")
ENGINE = WorkerGroup(
    name="engine", role=Role.MIXED, num_workers=1, curves=CURVES, kv_tokens=1_000_000,
    max_batch_tokens=2048, max_num_seqs=32, growth_tokens=1, chunk_grid=1, max_preemptions=0,
    looks_ahead=True, queues_at_worker=True, recomputes_as_prompt=True, keeps_preempted=True,
)  # fmt: skip


def engine(**changed):
    return msgspec.structs.replace(ENGINE, **changed)


def requests_of(seed, number=150, rate_per_s=12.0, longest=(3000, 300)):
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1e6 / rate_per_s, number)).round()
    prompts = rng.integers(20, longest[0], number)
    outputs = rng.integers(2, longest[1], number)
    return [(float(a), int(p), int(o)) for a, p, o in zip(arrivals, prompts, outputs, strict=True)]


def workload(requests):
    arrivals, prompts, outputs = zip(*requests, strict=True)
    return FastWorkload(
        arrival_us=np.array(arrivals, np.float64),
        num_prompt=np.array(prompts, np.int64),
        num_output=np.array(outputs, np.int64),
        hash_offsets=np.zeros(len(requests) + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def law_us(chunks, visible):
    prefills = [PrefillRows(num_rows=rows, num_visible=seen) for rows, seen in chunks]
    return CURVES.step_us(prefills, visible)


def written_out(requests, group):
    return EngineLoop(
        requests,
        law_us,
        num_blocks=group.kv_tokens // group.block_size,
        block_size=group.block_size,
        budget=group.max_batch_tokens,
        max_num_seqs=group.max_num_seqs,
    ).run()


def fast(requests, *groups):
    return simulate_fast(Deployment(groups=groups), workload(requests))


def test_one_request_waits_for_the_step_that_was_chosen_before_it_came():
    """A runs alone; B comes in its first step, is seen at the end and is in the step after next."""
    group = engine(name="one")
    found = fast([(0.0, 100, 4), (10.0, 50, 2)], group)
    first_us = law_us([(100, 0)], [])
    second_us = first_us + law_us([], [101])
    third_us = second_us + law_us([(50, 0)], [102])
    assert found.noticed_us.tolist() == [0.0, pytest.approx(first_us)]
    assert found.first_us.tolist() == [pytest.approx(first_us), pytest.approx(third_us)]


@pytest.mark.parametrize("seed", [1, 2])
def test_without_shortage_every_time_is_the_loops(seed):
    requests = requests_of(seed)
    truth, found = written_out(requests, ENGINE), fast(requests, ENGINE)
    assert truth.num_preempted == 0 == found.num_preempted.sum()
    for name in ("noticed_us", "first_us", "last_us"):
        wanted = np.array([getattr(one, name) for one in truth.all])
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-9, err_msg=name)


def growing():
    """Short prompts and long answers: what was admitted outgrows its blocks."""
    return requests_of(3, 250, 20.0, longest=(500, 900))


@pytest.mark.parametrize("kv_tokens", [8_000, 12_000])
def test_short_of_blocks_it_preempts_as_the_loop_does(kv_tokens):
    group, requests = engine(kv_tokens=kv_tokens, max_num_seqs=64), growing()
    truth, found = written_out(requests, group), fast(requests, group)
    num_preempted = int(found.num_preempted.sum())
    assert truth.num_preempted > 30
    assert num_preempted == pytest.approx(truth.num_preempted, rel=0.2)
    for name in ("first_us", "last_us"):
        wanted = np.array([getattr(one, name) - one.noticed_us for one in truth.all])
        mine = getattr(found, name) - found.noticed_us
        assert mine.mean() == pytest.approx(wanted.mean(), rel=0.02), name
        assert np.quantile(mine, 0.99) == pytest.approx(np.quantile(wanted, 0.99), rel=0.03), name


def test_blocks_that_nobody_took_are_found_again():
    keeping = fast(growing(), engine(kv_tokens=8_000, max_num_seqs=64))
    losing = fast(growing(), engine(kv_tokens=8_000, max_num_seqs=64, keeps_preempted=False))
    assert keeping.num_preempted.sum() > 30
    assert keeping.workers.num_rows[0] < losing.workers.num_rows[0]
    assert keeping.duration_us < losing.duration_us


def test_ranks_that_step_together_wait_for_the_longest():
    """A prompt of 400 rows on one rank, a decode on the other: both steps end at once."""
    side = msgspec.structs.replace(
        SIDE, group_rows=Line(knots=(0.0, 1000.0), values_us=(0.0, 50_000.0))
    )
    curves = msgspec.structs.replace(CURVES, sides=(side,))
    ranks = engine(
        name="rank", num_workers=2, curves=curves, steps_together=True, looks_ahead=False
    )
    found = fast([(0.0, 10, 2), (1.0, 400, 2)], ranks)
    assert found.decode_worker.tolist() == [0, 1]
    first_us = law_us([(10, 0)], []) + 50.0 * 10
    # Alone the rank with the prompt takes longest; all 401 rows go through what they share.
    second_us = first_us + law_us([(400, 0)], []) + 50.0 * 401
    assert found.first_us.tolist() == [pytest.approx(first_us), pytest.approx(second_us)]
    assert found.last_us[0] == pytest.approx(second_us)


def test_steps_of_several_stages_cannot_be_taken_together():
    with pytest.raises(ConfigError, match="a pipeline of 2 stages"):
        engine(curves=msgspec.structs.replace(CURVES, pipeline=2), steps_together=True)


def test_equal_runs_are_equal_to_the_bit():
    requests, group = growing(), engine(kv_tokens=8_000, max_num_seqs=64)
    a, b = fast(requests, group), fast(requests, group)
    assert a.last_us.tobytes() == b.last_us.tobytes()
