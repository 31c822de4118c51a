"""Fleets that no other one beats on every count at once: the Pareto front."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


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
