"""The net margin of cells, from paired simulations of both sides (0x0FD)."""

import msgspec
import numpy as np
import pytest
from tests.planner.machines import TOKEN_NBYTES, candidate, space, workload

from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.planner.margin import Axis, Cell, MarginAsk, Side, find_surface, net_margin
from baton.planner.placement.deployments import free_topology, mixed_pool, split
from baton.planner.placement.packing import Instances, pack_free
from baton.sim.fast.deployment import Delays, Failure
from baton.sim.fast.run import simulate_fast

ASK = MarginAsk(targets=SLOTargets(ttft_us=1_000_000, tpot_us=40_000), num_requests=300)
WHERE = space(cuts=((1, 1),), num_nodes=4, gpus_per_node=1)
CELL = Cell(rate_per_s=12.0)


def sides(delays=None, failures=()):
    one = candidate()
    groups = (
        Instances(letter="p", parallel=one.parallel, num=2),
        Instances(letter="d", parallel=one.parallel, num=2),
    )
    topology = free_topology(WHERE.cluster, pack_free(groups, 4, 1), *groups, 10.0)
    halves = split(WHERE, one, 2, one, 2, topology, 2048)
    halves = msgspec.structs.replace(halves, delays=delays or Delays(), failures=failures)
    pool = mixed_pool(one, WHERE.serving, 4, batch_policy="prefill_first")
    return Side(deployment=pool), Side(deployment=halves)


def test_the_parts_add_up_to_the_difference_of_both_sides():
    colocated, halves = sides(Delays(control_us=200.0))
    found = net_margin(colocated, halves, workload(), CELL, ASK)
    differences = []
    for seed in ASK.seeds:
        requests = CELL.workload(workload(), ASK.num_requests, seed)
        means = [
            simulate_fast(side.deployment, requests).e2e_us[30:270].mean()
            for side in (colocated, halves)
        ]
        differences.append(means[0] - means[1])
    assert found.verdict.margin.delta_us == pytest.approx(np.mean(differences))
    assert found.delta.value == pytest.approx(np.mean(differences))


def test_a_slower_link_exposes_more_and_closes_the_gate():
    colocated, halves = sides()
    margins = [
        net_margin(
            colocated,
            halves,
            workload(),
            msgspec.structs.replace(CELL, link_bytes_per_s=link),
            ASK,
        )
        for link in (100e9, 1e9, 0.2e9)
    ]
    exposed = [one.verdict.margin.exposed_transfer_us for one in margins]
    assert exposed[0] < exposed[1] < exposed[2]
    # One prefill worker's share: 6 requests a second of some 450 tokens at 0.1 MB.
    assert 6 * workload().num_prompt.mean() * TOKEN_NBYTES > 0.2e9
    assert not margins[2].verdict.enable and not margins[2].verdict.ttft_passes
    assert margins[0].verdict.ttft_passes and margins[0].verdict.tpot_passes


def test_messages_and_failures_have_their_own_terms():
    slow_control = net_margin(*sides(Delays(control_us=5000.0)), workload(), CELL, ASK)
    assert slow_control.verdict.margin.route_delta_us > 10_000
    assert slow_control.verdict.margin.failure_penalty_us == 0
    died = Failure(worker=2, at_us=5e6, down_us=5e6)
    broken = net_margin(*sides(failures=(died,)), workload(), CELL, ASK)
    assert broken.verdict.margin.failure_penalty_us > 1000


def test_both_gates_and_the_safety_margin_have_to_pass():
    colocated, halves = sides()
    base = net_margin(colocated, halves, workload(), CELL, ASK)
    above = msgspec.structs.replace(ASK, safety_margin_us=abs(base.delta.value) + 1.0)
    guarded = net_margin(colocated, halves, workload(), CELL, above)
    assert not guarded.verdict.enable and "safety margin" in guarded.verdict.reasons[0]
    tight = msgspec.structs.replace(ASK, targets=SLOTargets(ttft_us=1_000_000, tpot_us=9_000))
    gated = net_margin(colocated, halves, workload(), CELL, tight)
    assert "TPOT attainment is below its target" in gated.verdict.reasons


def test_a_surface_is_a_grid_of_cells_and_equal_seeds_give_equal_ones():
    axes = (
        Axis(field="rate_per_s", values=(4.0, 12.0)),
        Axis(field="link_bytes_per_s", values=(0.2e9, 10e9, 100e9)),
    )
    ask = msgspec.structs.replace(ASK, num_requests=100)
    one, same = (find_surface(*sides(), workload(), CELL, *axes, ask) for _ in range(2))
    assert one == same
    assert [len(row) for row in one.cells] == [2, 2, 2]
    assert one.cells[0][1].cell == msgspec.structs.replace(CELL, link_bytes_per_s=0.2e9)
    assert one.deltas_us[0][1] < one.deltas_us[2][1]
    assert 0 <= one.share_enabled <= 1


def test_cells_change_the_workload_as_they_say():
    cell = Cell(rate_per_s=5.0, prompt_scale=2.0, output_scale=0.5, hit_ratio=0.5, cv=2.0)
    drawn = cell.workload(workload(), 400, 0)
    plain = Cell(rate_per_s=5.0).workload(workload(), 400, 0)
    assert (drawn.num_prompt == 2 * plain.num_prompt).all()
    shared = np.diff(drawn.hash_offsets)
    assert (shared == drawn.num_prompt // 2 // 16).all()
    first = drawn.hash_ids[: shared[0]]
    assert (first == np.arange(shared[0])).all(), "all requests share one chain"
    assert np.diff(drawn.arrival_us).mean() == pytest.approx(2e5)
    assert np.diff(drawn.arrival_us).std() > 1.5 * 2e5


def test_cells_and_axes_that_mean_nothing_are_refused():
    with pytest.raises(ConfigError, match="hit_ratio"):
        Cell(rate_per_s=1.0, hit_ratio=1.0)
    with pytest.raises(ConfigError, match="axis 'loudness' is not known; use one of rate_per_s"):
        Axis(field="loudness", values=(1.0,))
    with pytest.raises(ConfigError, match="both gates"):
        MarginAsk(targets=SLOTargets(ttft_us=1000))
    axis = Axis(field="cv", values=(1.0,))
    with pytest.raises(ConfigError, match="two different"):
        find_surface(*sides(), workload(), CELL, axis, axis, ASK)
