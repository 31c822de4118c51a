"""Fleets of equal cost, power or number, and the best split of such a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from baton.errors import ConfigError
from baton.planner.provision.fleet import Fleet, mixed_fleet, split_fleet
from baton.planner.provision.machine import MachineType
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import FleetRate, Grid, highest_rate, meets
from baton.planner.provision.service import Service

ROUNDING = 1e-9
MOST_MACHINES = 1024


class Budget(StrEnum):
    """What fleets have in common."""

    COST = "cost"
    POWER = "power"
    MACHINES = "machines"

    def of(self, machine: MachineType) -> float:
        """What one machine takes of it."""
        if self is Budget.COST:
            return machine.cost
        return machine.power if self is Budget.POWER else 1.0

    def spent(self, service: Service, fleet: Fleet) -> float:
        """What a fleet takes of it."""
        return sum(num * self.of(service.machine(name)) for name, num in fleet.machines.items())


def iso_fleets(
    service: Service, prompt: str, token: str, budget: Budget, amount: float
) -> list[Fleet]:
    """For each number of prompt machines the most token machines that the budget leaves.

    A fleet with fewer can only serve less, so the best of all within the budget is among them.
    """
    one, other = budget.of(service.machine(prompt)), budget.of(service.machine(token))
    most = int((amount - other) / one + ROUNDING)
    _check_count(budget, amount, max(most, int((amount - one) / other)))
    fleets = [
        split_fleet(prompt, num, token, int((amount - num * one) / other + ROUNDING))
        for num in range(1, most + 1)
    ]
    if not fleets:
        raise ConfigError(
            f"{budget} {amount:g} buys no {prompt} ({one:g}) beside a {token} ({other:g})"
        )
    return fleets


def iso_mixed(service: Service, machine: str, budget: Budget, amount: float) -> Fleet:
    """As many machines for both phases as the budget buys."""
    each = budget.of(service.machine(machine))
    num = int(amount / each + ROUNDING)
    _check_count(budget, amount, num)
    if num < 1:
        raise ConfigError(f"{budget} {amount:g} buys no {machine}, which takes {each:g}")
    return mixed_fleet(machine, num)


def _check_count(budget: Budget, amount: float, num: int) -> None:
    """Every split of a budget is a fleet to simulate: more than so many would never end."""
    if num > MOST_MACHINES:
        raise ConfigError(
            f"--budget {budget}:{amount:g} buys {num:.3g} machines of one type; at most "
            f"{MOST_MACHINES} are searched"
        )


@dataclass(frozen=True, kw_only=True)
class BestSplit:
    """The fastest of fleets with equal budgets, and what the search did."""

    best: FleetRate
    num_fleets: int
    num_searched: int
    """Whose own highest rate was searched; each other one failed at one step above the best."""

    def statement(self) -> str:
        """Why no other one can be better."""
        return (
            f"{self.num_fleets} fleets: the highest rate of {self.num_searched} was searched, "
            f"{self.num_fleets - self.num_searched} failed one step above the best so far"
        )


def best_split(
    prober: Prober, fleets: Sequence[Fleet], grid: Grid, seeds: Sequence[int]
) -> BestSplit:
    """The fleet with the highest rate at which every seed passes.

    A fleet that fails with any seed at one step above the incumbent's rate cannot beat it. From
    the middle outwards, since a balanced split is most often the best.
    """
    if not fleets:
        raise ConfigError("no fleets to choose from")
    middle = (len(fleets) - 1) / 2
    order = sorted(range(len(fleets)), key=lambda place: (abs(place - middle), place))
    best: FleetRate | None = None
    num_searched = 0
    for place in order:
        fleet = fleets[place]
        if best is not None and not meets(prober, fleet, best.sure_per_s + grid.step_per_s, seeds):
            continue
        num_searched += 1
        found = highest_rate(prober, fleet, grid, seeds)
        if best is None or found.sure_per_s > best.sure_per_s:
            best = found
    assert best is not None
    return BestSplit(best=best, num_fleets=len(fleets), num_searched=num_searched)


def parse_budget(text: str) -> tuple[Budget, float]:
    """From `cost:1500`, `power:1760` or `machines:40`."""
    kind, _, amount = text.partition(":")
    known = [one.value for one in Budget]
    if kind not in known:
        raise ConfigError(f"--budget {text!r}: write one of {', '.join(known)} and an amount")
    try:
        value = float(amount)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"--budget {text!r}: the amount must be a number above 0")
    return Budget(kind), value
