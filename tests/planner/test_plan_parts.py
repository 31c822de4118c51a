"""Clusters that are planned in equal parts: which parts, and what they are together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.machines import space, workload

from baton.goodput.slo import SLOTargets
from baton.planner.placement.ask import Ask
from baton.planner.placement.colocated_search import search_colocated
from baton.planner.plan.blueprints import blueprint_of
from baton.planner.plan.parts import MOST_GPUS, parts_of, repeated_arm


@given(st.integers(1, 500), st.sampled_from([1, 4, 8, 72]))
def test_parts_cover_the_cluster_but_for_less_than_one(num_nodes, gpus_per_node):
    where = space(num_nodes=num_nodes, gpus_per_node=gpus_per_node)
    parts = parts_of(where)
    size = parts.space.cluster.num_gpus
    assert parts.num * size + parts.num_left == where.cluster.num_gpus
    assert parts.num_left < size and size <= max(MOST_GPUS, gpus_per_node)
    is_whole = parts.num == 1 and not parts.num_left
    assert is_whole == (parts.warning == "") == (parts.space is where)
    if parts.num_left:
        assert f"{parts.num_left} GPUs are left over" in parts.warning
    if parts.num > 1:
        assert f"{parts.num} equal parts of {size} GPUs" in parts.warning
        assert 2 * size > MOST_GPUS or gpus_per_node > MOST_GPUS / 2


def test_what_makes_no_second_part_is_left_over_and_said():
    parts = parts_of(space(num_nodes=9, gpus_per_node=8))
    assert (parts.num, parts.num_left) == (1, 8)
    assert parts.warning.startswith("planned as one part of 64 GPUs, 8 GPUs are left over")


def test_a_thousand_gpus_are_twenty_five_parts_of_forty():
    parts = parts_of(space(num_nodes=125, gpus_per_node=8))
    assert (parts.num, parts.space.cluster.num_gpus, parts.num_left) == (25, 40, 0)


def test_an_arm_that_is_repeated_is_so_many_times_as_much():
    where = space(cuts=((2, 1),), gpus_per_node=4)
    ask = Ask(targets=SLOTargets(ttft_us=400_000, tpot_us=25_000), num_requests=250)
    one = search_colocated(where, workload(), ask, policies=("prefill_first",)).best
    many = repeated_arm(one, 3)
    assert many.goodput_per_s == pytest.approx(3 * one.goodput_per_s)
    assert many.num_gpus == 3 * one.num_gpus == 12
    assert many.per_gpu == pytest.approx(one.per_gpu)
    assert many.residency.weight_nbytes == 3 * one.residency.weight_nbytes
    assert many.answer.rate.low == pytest.approx(3 * one.answer.rate.low)
    blueprint = blueprint_of(many)
    assert blueprint.num_gpus == 12 and {stage.node for stage in blueprint.stages} == {0, 1, 2}
    assert len({(stage.node, gpu) for stage in blueprint.stages for gpu in stage.gpus}) == 12
