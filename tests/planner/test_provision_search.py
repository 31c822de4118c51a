"""Searches over fleets on the fast host: made-up machines, real simulations."""

import msgspec
import numpy as np
import pytest
from tests.planner.provisioned import load, service

from baton.errors import ConfigError
from baton.goodput.slowdown import TBT, SlowdownTargets
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.planner.provision.alone import Alone
from baton.planner.provision.fleet import mixed_fleet, parse_fleet, split_fleet
from baton.planner.provision.front import dominates
from baton.planner.provision.iso import Budget, best_split, iso_fleets
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import Grid, highest_rate, meets
from baton.planner.provision.search import (
    Objective,
    fleets_for_budget,
    fleets_for_rate,
    rates_of_fleets,
)
from baton.planner.provision.space import smallest_mixed, staircase

SEEDS = (0, 1, 2)
GRID = Grid(step_per_s=1.0)


def prober(tbt: TBT = TBT.PER_GAP, duration_s: float = 30.0, **rules) -> Prober:
    return Prober(
        service=service(**rules),
        load=load(duration_s),
        targets=SlowdownTargets(),
        tbt=tbt,
    )


@pytest.fixture(scope="module")
def shared() -> Prober:
    """One memory of simulations for all tests that only ask."""
    return prober()


# -- what slowdowns are measured against ---------------------------------------------------------


def test_alone_is_one_prompt_step_and_a_decode_step_for_each_further_token():
    side = StepSide(
        prefill_rows=Line(knots=(0.0, 1000.0), values_us=(100.0, 1100.0)),
        decode_us=50.0,
        decode_token_us=2.0,
    )
    alone = Alone(StepCurves(sides=(side,), source="by hand"))
    prompts, outputs = np.array([10, 400, 7]), np.array([1, 3, 2])
    assert alone.ttft_us(prompts).tolist() == [110.0, 500.0, 107.0]
    # Steps of the second see 401 and 402 tokens, that of the third 8.
    expected = [0.0, 2 * 50 + 2 * (401 + 402), 50 + 2 * 8]
    assert alone.decode_us(prompts, outputs).tolist() == expected


def test_an_idle_fleet_of_the_reference_machine_is_as_fast_as_alone():
    one = prober(spill=None)
    probe = one.probe(split_fleet("a100", 8, "a100", 8), 4.0, 0)
    verdict = probe.verdict
    assert verdict.passes and probe.num_completed == probe.num_requests == 200
    assert verdict.at("ttft", 50) == pytest.approx(1.0, abs=0.01)
    assert verdict.at("tbt", 50) == pytest.approx(1.0, abs=0.05)


def test_the_two_definitions_of_tbt_differ_by_one_gap():
    fleet = split_fleet("a100", 8, "a100", 8)
    gap, token = (
        prober(tbt, spill=None).probe(fleet, 4.0, 0).verdict for tbt in (TBT.PER_GAP, TBT.PER_TOKEN)
    )
    assert token.at("tbt", 50) < gap.at("tbt", 50)
    assert token.at("ttft", 90) == gap.at("ttft", 90)


def test_faster_machines_have_slowdowns_below_one():
    probe = prober(spill=None).probe(split_fleet("h100", 8, "h100", 8), 4.0, 0)
    assert probe.verdict.at("ttft", 50) < 0.6
    assert probe.verdict.at("tbt", 50) < 0.85


# -- rates ---------------------------------------------------------------------------------------


def test_the_highest_rate_passes_and_the_next_one_does_not(shared):
    found = highest_rate(shared, split_fleet("a100", 3, "a100", 3), GRID, SEEDS)
    for one in found.seeds:
        assert one.rate_per_s > 0
        assert shared.probe(found.fleet, one.rate_per_s, one.seed).passes
        above = shared.probe(found.fleet, one.rate_per_s + 1, one.seed)
        assert not above.passes and above.verdict.binding == one.binding
    assert found.rate.low <= found.rate.value <= found.rate.high
    assert found.sure_per_s == min(one.rate_per_s for one in found.seeds)


@pytest.mark.parametrize("tbt", list(TBT))
def test_who_is_stopped_early_would_have_failed_to_the_end(tbt):
    """Over a range of rates the verdict alone agrees with that of whole simulations."""
    num_stopped = 0
    for fleet in (split_fleet("a100", 3, "a100", 3), mixed_fleet("a100", 4)):
        for rate in (4.0, 8.0, 12.0, 20.0, 40.0):
            quick, whole = prober(tbt), prober(tbt)
            assert quick.passes(fleet, rate, 0) == whole.probe(fleet, rate, 0).passes
            num_stopped += quick.num_stopped
    assert num_stopped >= 3


def test_a_seed_is_searched_alike_whatever_the_others_are(shared):
    fleet = split_fleet("a100", 3, "a100", 3)
    one, other = (highest_rate(shared, fleet, GRID, seeds) for seeds in (SEEDS, (2, 5, 0)))
    assert one.seeds[0] == other.seeds[2] and one.seeds[2] == other.seeds[0]


def test_equal_seeds_give_equal_answers():
    fleet = split_fleet("h100", 2, "a100", 3)
    one, other = (highest_rate(prober(), fleet, GRID, SEEDS) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("more", ["2xa100:1xa100", "1xa100:2xa100", "2xa100:2xa100"])
def test_more_machines_never_serve_less(shared, more):
    base = highest_rate(shared, parse_fleet("1xa100:1xa100"), GRID, SEEDS)
    grown = highest_rate(shared, parse_fleet(more), GRID, SEEDS)
    for under, over in zip(base.seeds, grown.seeds, strict=True):
        assert over.rate_per_s >= under.rate_per_s - GRID.step_per_s


def test_a_fleet_that_serves_nothing_has_rate_zero_and_a_reason():
    tight = prober()
    tight.targets = SlowdownTargets().scaled(0.5)
    found = highest_rate(tight, mixed_fleet("a100", 2), Grid(step_per_s=4.0), SEEDS)
    assert found.rate.value == 0 and found.sure_per_s == 0 and found.binding


def test_too_few_seeds_are_refused_and_slow_loads_last_longer(shared):
    with pytest.raises(ConfigError, match="at least 3 different"):
        highest_rate(shared, mixed_fleet("a100", 2), GRID, (0, 0, 1))
    slow = shared.load.at(0.5, 0)
    assert len(slow) == 200 and slow.arrival_us[-1] == pytest.approx(398e6, rel=0.2)


def test_rates_of_a_seed_share_their_requests(shared):
    one, other = shared.load.at(20.0, 1), shared.load.at(10.0, 1)
    num = len(other)
    assert (one.num_prompt[:num] == other.num_prompt).all()
    assert (one.num_output[:num] == other.num_output).all()
    assert one.arrival_us[:num] * 2 == pytest.approx(other.arrival_us)


# -- fleets for a rate ---------------------------------------------------------------------------


def test_the_staircase_agrees_with_every_fleet_of_the_box():
    one, rate = prober(duration_s=10.0), 12.0
    walk = staircase(one, "a100", "a100", rate, SEEDS, 8)
    serving = {
        (p, t)
        for p in range(1, walk.largest[0] + 1)
        for t in range(1, walk.largest[1] + 1)
        if meets(one, split_fleet("a100", p, "a100", t), rate, SEEDS)
    }
    corners = {
        (p, t) for p, t in serving if (p - 1, t) not in serving and (p, t - 1) not in serving
    }
    assert {(fleet.num_prompt, fleet.num_token) for fleet in walk.corners} == corners
    total = walk.num_simulated + walk.num_failing + walk.num_larger
    assert total == walk.largest[0] * walk.largest[1]
    assert walk.num_simulated < total


def test_a_box_too_small_says_that_nothing_serves():
    walk = staircase(prober(duration_s=10.0), "a100", "a100", 40.0, SEEDS, 2)
    assert walk.corners == () and walk.num_simulated + walk.num_failing == 4
    assert smallest_mixed(prober(duration_s=10.0), "a100", 40.0, SEEDS, 2) is None


def test_the_answer_for_a_rate_names_the_best_and_the_front():
    one = prober(duration_s=15.0)
    answer = fleets_for_rate(
        one, ("a100", "h100"), 10.0, SEEDS, Objective.POWER, 16, lambda _: None
    )
    assert [one.power for one in answer.designs] == sorted(one.power for one in answer.designs)
    assert {design.name for design in answer.designs} >= {"AA", "HH", "HA", "A mixed", "H mixed"}
    marked = [design for design in answer.designs if design.is_on_front]
    losses = [(d.cost, d.power, d.num_machines, -d.rate.value) for d in answer.designs]
    for design in marked:
        own = (design.cost, design.power, design.num_machines, -design.rate.value)
        assert not any(dominates(other, own) for other in losses)
    for design in answer.designs:
        assert len(design.figures) == len(SEEDS)
        assert all(figures.use <= 1 for figures in design.figures)
    assert answer.constants == "simulator" and answer.tbt == "per_gap"
    assert msgspec.json.decode(msgspec.json.encode(answer))["designs"][0]["fleet"]


# -- budgets -------------------------------------------------------------------------------------


def test_the_best_split_beats_every_other_one():
    one = prober(duration_s=15.0)
    fleets = iso_fleets(one.service, "a100", "a100", Budget.MACHINES, 6)
    found = best_split(one, fleets, GRID, SEEDS)
    rates = [highest_rate(one, fleet, GRID, SEEDS).sure_per_s for fleet in fleets]
    assert found.best.sure_per_s == max(rates)
    assert found.num_fleets == len(fleets) == 5 and found.num_searched <= 5


def test_the_answer_for_a_budget_spends_no_more():
    one = prober(duration_s=15.0)
    answer = fleets_for_budget(
        one, ("a100", "h100cap"), Budget.POWER, 130.0, GRID, SEEDS, lambda _: None
    )
    assert len(answer.designs) == 2 + 4
    assert all(design.power <= 130.0 for design in answer.designs)
    values = [design.rate.value for design in answer.designs]
    assert values == sorted(values, reverse=True)


def test_another_workload_can_cost_a_fleet_its_rate():
    """Twice the prompt: a fleet with few prompt machines loses more than one with many."""
    fleets = [parse_fleet("1xa100:4xa100"), parse_fleet("4xa100:1xa100")]
    longer = prober(duration_s=30.0, spill=None)
    longer.load = load(30.0, prompt=1800)
    rates = [
        [one.rate.value for one in rates_of_fleets(p, fleets, GRID, SEEDS, lambda _: None).designs]
        for p in (prober(spill=None), longer)
    ]
    by_fleet = {
        str(one.fleet): one.rate.value
        for one in rates_of_fleets(longer, fleets, GRID, SEEDS, lambda _: None).designs
    }
    assert min(rates[1]) < min(rates[0])
    assert by_fleet["1xa100:4xa100"] < by_fleet["4xa100:1xa100"]


def test_a_rate_has_no_fastest_fleet():
    with pytest.raises(ConfigError, match="needs a budget"):
        fleets_for_rate(prober(), ("a100",), 5.0, SEEDS, Objective.THROUGHPUT)
