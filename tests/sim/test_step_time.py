"""The predictor behind a simulated engine: a profile changes times, and nothing else."""

import pytest
from tests.policy.profiles import make_profile

from baton.core.request import Request, SamplingParams
from baton.core.work import Batch, WorkItem
from baton.policy.phase_cost import PrefillRows
from baton.sim.plan import Arrival, Hardware, Plan
from baton.sim.step_time import LinearStepTime, ProfileStepTime, phase_rows
from baton.sim.world import World

GREEDY = SamplingParams(max_tokens=6)


def item(start: int, count: int, num_prompt_tokens: int) -> WorkItem:
    return WorkItem(
        request_id="r", generation=0, token_ids=(1,) * count, start=start,
        num_prompt_tokens=num_prompt_tokens, block_table=(0,), sample=False, sampling=GREEDY,
    )  # fmt: skip


def test_rows_are_of_a_phase_by_where_they_stand():
    prefills, visible = phase_rows([item(4, 6, 10), item(10, 1, 10), item(8, 5, 10)])
    assert prefills == [
        PrefillRows(num_rows=6, num_visible=4), PrefillRows(num_rows=2, num_visible=8),
    ]  # fmt: skip
    assert visible == [11, 11, 12, 13]


def test_both_predictors_say_what_they_were_given():
    batch = Batch(batch_id=1, items=(item(0, 6, 10), item(20, 1, 10)))
    linear = LinearStepTime(Hardware(step_us=200, row_us=20))
    assert linear.step_us(batch, True) == linear.step_us(batch, False) == 340
    profile = make_profile()
    measured = ProfileStepTime(profile)
    expected_us = profile.step_us([PrefillRows(num_rows=6)], [21])
    assert measured.step_us(batch, False) == round(expected_us)
    assert measured.step_us(batch, True) == round(1.1 * expected_us)


def test_a_world_by_profile_gives_the_same_tokens_at_other_times():
    request = Request(request_id="r", prompt_token_ids=tuple(range(9)), sampling=GREEDY)
    plan = Plan(arrivals=(Arrival(at_us=1_000_000, request=request),))
    worlds = [World(plan), World(plan, step_time=ProfileStepTime(make_profile()))]
    for world in worlds:
        world.timeline.run_until(20_000_000)
        assert world.end_of("r") is not None
    linear, measured = (list(world.deliveries["r"]) for world in worlds)
    assert linear == measured
    assert worlds[0].trace_hash != worlds[1].trace_hash


def test_a_neighbour_is_busy_while_its_engine_computes():
    request = Request(request_id="r", prompt_token_ids=tuple(range(9)), sampling=GREEDY)
    world = World(Plan(arrivals=(Arrival(at_us=1_000_000, request=request),)))
    prefill, decode = world.workers.values()
    seen = set()
    while world.end_of("r") is None:
        world.timeline.step()
        seen.add((prefill.engine.is_busy, world.is_neighbour_busy(decode)))
    assert seen == {(False, False), (True, True)}
    assert not world.is_neighbour_busy(prefill) or decode.engine.is_busy


@pytest.mark.parametrize("busy", [True, False])
def test_a_predicted_step_is_never_nothing(busy):
    empty = Batch(batch_id=1, items=())
    assert ProfileStepTime(make_profile()).step_us(empty, busy) == 1
