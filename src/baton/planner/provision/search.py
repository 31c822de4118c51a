"""The three questions: fleets for a rate, the fastest of a budget, and what given fleets serve."""

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import product

import msgspec

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.planner.provision.answer import Answer, Design, figures
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.front import front
from baton.planner.provision.iso import Budget, best_split, iso_fleets, iso_mixed
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import FleetRate, Grid, check_seeds, highest_rate
from baton.planner.provision.space import MAX_MACHINES, smallest_mixed, staircase

Say = Callable[[str], None]
"""Told before each part of a search; `num_parts` says how many there are."""


class Objective(StrEnum):
    """What the best design has least of, or most."""

    COST = "cost"
    POWER = "power"
    MACHINES = "machines"
    THROUGHPUT = "throughput"


def num_parts(num_machines: int, num_fleets: int = 0) -> int:
    """Of a search over so many types, or of given fleets."""
    return num_fleets or num_machines + num_machines**2


def fleets_for_rate(
    prober: Prober,
    machines: Sequence[str],
    rate_per_s: float,
    seeds: Sequence[int],
    objective: Objective = Objective.COST,
    max_machines: int = MAX_MACHINES,
    say: Say = print,
) -> Answer:
    """Every smallest fleet of each pair of types, and of each type alone, that serves a rate."""
    if objective is Objective.THROUGHPUT:
        raise ConfigError("objective 'throughput' needs a budget; for a rate choose cost or power")
    check_seeds(seeds)
    fleets: list[Fleet] = []
    statements = []
    for machine in machines:
        say(f"{machine} for both phases")
        fleet = smallest_mixed(prober, machine, rate_per_s, seeds, max_machines)
        fleets += [fleet] if fleet else []
        statements += [] if fleet else [f"{machine} for both phases: none up to {max_machines}"]
    for prompt, token in product(machines, repeat=2):
        say(f"{prompt} for prompts, {token} for tokens")
        walk = staircase(prober, prompt, token, rate_per_s, seeds, max_machines)
        fleets += walk.corners
        statements.append(f"{prompt}:{token}: {walk.statement()}")
    designs = [
        _design(prober, fleet, _asked(rate_per_s, len(seeds)), "", seeds) for fleet in fleets
    ]
    question = f"fleets that serve {rate_per_s:g} requests/s"
    return _answer(prober, designs, objective, question, seeds, statements)


def fleets_for_budget(
    prober: Prober,
    machines: Sequence[str],
    budget: Budget,
    amount: float,
    grid: Grid,
    seeds: Sequence[int],
    say: Say = print,
) -> Answer:
    """The fastest split of each pair of types, and each type for both phases, within a budget."""
    check_seeds(seeds)
    designs, statements = [], []
    for machine in machines:
        say(f"{machine} for both phases")
        found = highest_rate(
            prober, iso_mixed(prober.service, machine, budget, amount), grid, seeds
        )
        designs.append(_rated(prober, found))
    for prompt, token in product(machines, repeat=2):
        say(f"{prompt} for prompts, {token} for tokens")
        fleets = iso_fleets(prober.service, prompt, token, budget, amount)
        split = best_split(prober, fleets, grid, seeds)
        designs.append(_rated(prober, split.best))
        statements.append(f"{prompt}:{token}: {split.statement()}")
    question = f"the fastest fleets of {budget} {amount:g}"
    return _answer(prober, designs, Objective.THROUGHPUT, question, seeds, statements)


def rates_of_fleets(
    prober: Prober, fleets: Sequence[Fleet], grid: Grid, seeds: Sequence[int], say: Say = print
) -> Answer:
    """The highest rate of each given fleet."""
    check_seeds(seeds)
    designs = []
    for fleet in fleets:
        say(str(fleet))
        designs.append(_rated(prober, highest_rate(prober, fleet, grid, seeds)))
    question = "the highest rates of the given fleets"
    return _answer(prober, designs, Objective.THROUGHPUT, question, seeds, [])


def _asked(rate_per_s: float, num: int) -> Estimate:
    """A rate that every seed passes has no spread of its own."""
    return Estimate(value=rate_per_s, low=rate_per_s, high=rate_per_s, num=num)


def _rated(prober: Prober, found: FleetRate) -> Design:
    seeds = [one.seed for one in found.seeds]
    rates = [one.rate_per_s for one in found.seeds]
    return _design(prober, found.fleet, found.rate, found.binding, seeds, rates)


def _design(
    prober: Prober,
    fleet: Fleet,
    rate: Estimate,
    binding: str,
    seeds: Sequence[int],
    rates: Sequence[float] | None = None,
) -> Design:
    """With the figures at its rate; a fleet that serves nothing has none."""
    service = prober.service
    at = rates or [rate.value] * len(seeds)
    probes = [
        prober.probe(fleet, one, seed) for one, seed in zip(at, seeds, strict=True) if one > 0
    ]
    uses = sorted((probe.verdict.binding for probe in probes), key=lambda one: -one.use)
    return Design(
        name=service.design(fleet),
        fleet=fleet,
        num_machines=fleet.num_machines,
        cost=service.cost(fleet),
        power=service.power(fleet),
        rate=rate,
        binding=binding or (uses[0].name if uses else ""),
        figures=tuple(figures(probe) for probe in probes),
    )


def _answer(
    prober: Prober,
    designs: Sequence[Design],
    objective: Objective,
    question: str,
    seeds: Sequence[int],
    statements: Sequence[str],
) -> Answer:
    best = [id(one) for one in front(designs, _losses)]
    marked = [msgspec.structs.replace(one, is_on_front=id(one) in best) for one in designs]
    marked.sort(key=lambda one: (_order(one, objective), _losses(one), _use(one), str(one.fleet)))
    service, load = prober.service, prober.load
    return Answer(
        objective=objective,
        question=question,
        constants=service.constants,
        cost_unit=service.cost_unit,
        power_unit=service.power_unit,
        tbt=prober.tbt,
        load=f"{load.name or load.trace.source}, {load.draws}, {load.duration_s:g} s of arrivals",
        predictors={name: one.curves.source for name, one in service.machines.items()},
        seeds=tuple(seeds),
        designs=tuple(_ties_named(marked)),
        statements=tuple(statements),
        num_simulations=prober.num_simulated,
        warnings=tuple(
            f"{name}: {one.warning}" for name, one in service.machines.items() if one.warning
        ),
    )


def _losses(one: Design) -> tuple[float, ...]:
    """Each is better when it is less; rounded, since sums in another order differ by a crumb."""
    losses = (one.cost, one.power, float(one.num_machines), -one.rate.value)
    return tuple(round(loss, 9) for loss in losses)


def _use(one: Design) -> float:
    """How much of the binding bound is used at most over seeds."""
    return max((found.use for found in one.figures), default=math.inf)


def _ties_named(designs: Sequence[Design]) -> Iterator[Design]:
    """Of equal ones on the front the first stands for the others, which say so."""
    first: dict[tuple[float, ...], str] = {}
    for one in designs:
        if not one.is_on_front:
            yield one
            continue
        fleet = f"{one.fleet}"
        stands = first.setdefault(_losses(one), fleet)
        yield msgspec.structs.replace(one, same_as="" if stands == fleet else stands)


def _order(one: Design, objective: Objective) -> float:
    if objective is Objective.COST:
        return one.cost
    if objective is Objective.POWER:
        return one.power
    return float(one.num_machines) if objective is Objective.MACHINES else -one.rate.value
