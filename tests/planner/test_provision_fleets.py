"""Fleets and budgets: spelling, what they cost, and which fleets of a budget there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.provisioned import MACHINES, service

from baton.core.ids import Role
from baton.errors import ConfigError
from baton.planner.provision.constants import PAPER, SETS, SIMULATOR, TDP, find_constants
from baton.planner.provision.fleet import Fleet, mixed_fleet, parse_fleet, split_fleet
from baton.planner.provision.front import dominates, front
from baton.planner.provision.iso import Budget, iso_fleets, iso_mixed, parse_budget
from baton.planner.provision.space import corners_of

SERVICE = service()
TYPES = sorted(MACHINES)


@pytest.mark.parametrize(
    ("text", "fleet"),
    [
        ("70xa100", mixed_fleet("a100", 70)),
        ("25xh100:26xa100", split_fleet("h100", 25, "a100", 26)),
        (" 1xh100 : 1xh100cap", split_fleet("h100", 1, "h100cap", 1)),
    ],
)
def test_a_fleet_reads_as_it_prints(text, fleet):
    assert parse_fleet(text) == fleet
    assert parse_fleet(str(fleet)) == fleet


@pytest.mark.parametrize(
    "text", ["", "a100", "xa100", "3x", "0xa100", "1xa100:0xh100", "1xa:1xb:1xc", "-1xa100", "1 xa"]
)
def test_a_fleet_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="fleet"):
        parse_fleet(text)


def test_pools_need_each_other_and_exclude_mixed_machines():
    with pytest.raises(ConfigError, match="need each other"):
        Fleet(prompt="a100", num_prompt=2)
    with pytest.raises(ConfigError, match="or mixed"):
        Fleet(prompt="a", num_prompt=1, token="a", num_token=1, mixed="a", num_mixed=1)


def test_published_designs_cost_and_draw_what_was_published():
    """Seventy A100s cost 0.81 of forty H100s; 86 draw 1.21 times as much."""
    base, power, cost = (parse_fleet(text) for text in ("40xh100", "70xa100", "86xa100"))
    assert SERVICE.cost(power) / SERVICE.cost(base) == pytest.approx(0.81, abs=0.005)
    assert SERVICE.power(power) / SERVICE.power(base) == pytest.approx(0.986, abs=0.005)
    assert SERVICE.power(cost) / SERVICE.power(base) == pytest.approx(1.21, abs=0.005)
    assert cost.num_machines / base.num_machines == 2.15
    mixed = parse_fleet("25xh100:26xa100")
    assert SERVICE.cost(mixed) / SERVICE.cost(base) == pytest.approx(0.93, abs=0.01)
    assert SERVICE.cost(mixed) / SERVICE.cost(power) == pytest.approx(1.14, abs=0.005)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1xa100:1xa100", "AA"),
        ("1xh100:1xa100", "HA"),
        ("1xh100:1xh100cap", "HHcap"),
        ("9xh100", "H mixed"),
    ],
)
def test_designs_are_named_by_their_machines(text, name):
    assert SERVICE.design(parse_fleet(text)) == name


def test_the_sets_of_constants_disagree_and_are_named():
    ratios = {one.name: one.cost["h100"] / one.cost["a100"] for one in SETS.values()}
    assert ratios["simulator"] == pytest.approx(2.154, abs=0.001)
    assert ratios["paper"] == 2.35
    assert SIMULATOR.power["h100"] / SIMULATOR.power["a100"] == pytest.approx(1.774, abs=0.001)
    assert TDP.power["h100"] / TDP.power["a100"] == pytest.approx(1.57, abs=0.001)
    assert PAPER.power["h100cap"] == 1.23
    assert SIMULATOR.power["h100cap"] / SIMULATOR.power["h100"] == pytest.approx(0.7)


def test_unknown_constants_and_uncovered_machines_say_what_there_is():
    with pytest.raises(ConfigError, match=r"simulatr.*nearest: simulator"):
        find_constants("simulatr")
    with pytest.raises(ConfigError, match=r"no price of 'b200'.*catalogue"):
        SIMULATOR.check_covers("b200")


def test_a_fleet_becomes_a_deployment_of_its_machines():
    deployment = SERVICE.deployment(parse_fleet("3xh100:2xa100"))
    assert [(g.role, g.num_workers, g.max_batch_tokens) for g in deployment.groups] == [
        (Role.PREFILL, 3, 2048),
        (Role.DECODE, 2, 2048),
    ]
    # The pair talks at the rate of the slower machine's adapters.
    assert deployment.topology.egress_bytes_per_us == 200_000
    assert deployment.spill is not None and deployment.num_gpus == 40
    baseline = SERVICE.deployment(parse_fleet("4xh100"))
    assert [group.role for group in baseline.groups] == [Role.MIXED]
    assert baseline.handoff is None and baseline.spill is None


# -- budgets -------------------------------------------------------------------------------------

budgets = st.sampled_from(list(Budget))


@given(st.sampled_from(TYPES), st.sampled_from(TYPES), budgets, st.floats(100, 1000))
def test_fleets_of_a_budget_spend_it_within_one_machine(prompt, token, budget, amount):
    fleets = iso_fleets(SERVICE, prompt, token, budget, amount)
    assert len({fleet.num_prompt for fleet in fleets}) == len(fleets)
    for fleet in fleets:
        spent = budget.spent(SERVICE, fleet)
        assert spent <= amount + 1e-6 * amount
        assert spent > amount - budget.of(MACHINES[token]) - 1e-6 * amount
    # The next prompt machine would leave no room for a token machine.
    most = fleets[-1].num_prompt + 1
    assert most * budget.of(MACHINES[prompt]) + budget.of(MACHINES[token]) > amount - 1e-6 * amount


def test_the_published_iso_clusters_are_among_them():
    power = SERVICE.power(parse_fleet("40xh100"))
    assert iso_mixed(SERVICE, "a100", Budget.POWER, power) == mixed_fleet("a100", 70)
    assert parse_fleet("25xh100:26xa100") in iso_fleets(
        SERVICE, "h100", "a100", Budget.POWER, power
    )
    assert parse_fleet("45xa100:25xa100") in iso_fleets(
        SERVICE, "a100", "a100", Budget.POWER, power
    )
    assert parse_fleet("25xh100:21xh100cap") in iso_fleets(
        SERVICE, "h100", "h100cap", Budget.POWER, power
    )
    cost = SERVICE.cost(parse_fleet("40xh100"))
    assert iso_mixed(SERVICE, "a100", Budget.COST, cost) == mixed_fleet("a100", 86)
    assert parse_fleet("30xh100:21xa100") in iso_fleets(SERVICE, "h100", "a100", Budget.COST, cost)


def test_a_budget_that_buys_nothing_is_refused():
    with pytest.raises(ConfigError, match="cost 20 buys no h100"):
        iso_fleets(SERVICE, "h100", "a100", Budget.COST, 20)
    with pytest.raises(ConfigError, match="power 20 buys no a100"):
        iso_mixed(SERVICE, "a100", Budget.POWER, 20)


@pytest.mark.parametrize(
    "text", ["", "cost", "cost:", "money:3", "power:-1", "power:inf", "cost:x"]
)
def test_budgets_are_spelled_with_an_amount(text):
    with pytest.raises(ConfigError, match="--budget"):
        parse_budget(text)
    assert parse_budget("power:1760") == (Budget.POWER, 1760.0)


# -- the front and the staircase -----------------------------------------------------------------

points = st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=40)


@given(points)
def test_nothing_on_the_front_is_dominated_and_everything_else_is(items):
    chosen = front(items, lambda one: tuple(map(float, one)))
    assert all(not any(dominates(b, a) for b in items) for a in chosen)
    assert all(any(dominates(b, a) for b in chosen) for a in items if a not in chosen)


@given(st.lists(st.integers(1, 25), min_size=1, max_size=20), st.integers(1, 20))
def test_the_staircase_finds_every_corner_of_any_monotone_space(needed, most_prompt):
    """`needed[t]` prompt machines beside t token machines, never more with more tokens."""
    least = [min(needed[: place + 1]) for place in range(len(needed))]
    tried = []

    def serves(num_prompt: int, num_token: int) -> bool:
        tried.append((num_prompt, num_token))
        return num_prompt >= least[num_token - 1]

    found = corners_of(serves, most_prompt, len(least))
    serving = {
        (p, t)
        for t in range(1, len(least) + 1)
        for p in range(1, most_prompt + 1)
        if p >= least[t - 1]
    }
    corners = {
        (p, t) for p, t in serving if (p - 1, t) not in serving and (p, t - 1) not in serving
    }
    assert set(found) == corners
    assert len(set(tried)) <= 4 * (most_prompt + len(least))


def test_the_cheapest_of_any_prices_is_a_corner():
    serving = {(p, t) for p in range(1, 20) for t in range(1, 20) if p * t >= 30}
    corners = corners_of(lambda p, t: (p, t) in serving, 19, 19)
    for price in (0.1, 0.5, 1.0, 2.35, 40):
        best = min(p * price + t for p, t in serving)
        assert min(p * price + t for p, t in corners) == best
