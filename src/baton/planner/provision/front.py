"""Fleets that no other one beats on every count at once: the Pareto front."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from baton.planner.provision.fleet import Fleet
from baton.planner.provision.service import Service

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A fleet and what it is judged by."""

    fleet: Fleet
    design: str
    cost: float
    power: float
    num_machines: int
    rate_per_s: float
    """What it serves within the bounds."""


def point(service: Service, fleet: Fleet, rate_per_s: float) -> Point:
    """With its cost and power by the service's constants."""
    return Point(
        fleet=fleet,
        design=service.design(fleet),
        cost=service.cost(fleet),
        power=service.power(fleet),
        num_machines=fleet.num_machines,
        rate_per_s=rate_per_s,
    )


def losses(one: Point) -> tuple[float, ...]:
    """Each is better when it is less: cost, power, machines, and what is served, negated."""
    return (one.cost, one.power, float(one.num_machines), -one.rate_per_s)


def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Nowhere worse, and better somewhere."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def front(items: Sequence[Item], loss: Callable[[Item], tuple[float, ...]]) -> list[Item]:
    """Those that no other one dominates, in their order; equal ones all stay."""
    every = [loss(item) for item in items]
    return [
        item
        for item, own in zip(items, every, strict=True)
        if not any(dominates(other, own) for other in every)
    ]
