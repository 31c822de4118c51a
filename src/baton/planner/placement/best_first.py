"""Whole deployments in the order of their bounds, until no bound can beat what was found."""

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from baton.planner.placement.ask import Ask
from baton.planner.placement.waves import WAVE, in_waves

Plan = TypeVar("Plan")
Result = TypeVar("Result")


class Bounded(msgspec.Struct, Generic[Plan], frozen=True, kw_only=True):
    """A plan, the rate that it serves at most, before slack, and its GPUs."""

    plan: Plan
    bound_per_s: float
    num_gpus: int
    is_exact: bool = False
    """The bound is what the plan itself served while it was ranked: only noise is added to it."""


class Tally(msgspec.Struct, kw_only=True):
    """What happened to the plans of a search."""

    num_pruned: int = 0
    num_simulated: int = 0
    gap: float = 0.0


def best_first(
    plans: Sequence[Bounded[Plan]],
    ask: Ask,
    simulate: Callable[[Bounded[Plan], float], Result],
    goodput: Callable[[Result], float],
) -> tuple[list[Result], Tally]:
    """What `simulate(plan, incumbent)` found while a bound with slack exceeded the incumbent.

    The incumbent is the rate that the plan must exceed to be the best by the objective.
    """

    def bound(one: Bounded[Plan]) -> float:
        slack = ask.search_precision / 2 if one.is_exact else ask.slack
        return ask.value(one.bound_per_s, one.num_gpus) * (1 + slack)

    tally, best, left = Tally(), 0.0, sorted(plans, key=lambda one: (-bound(one), one.num_gpus))
    results: list[Result] = []
    num_searched = 0

    def can_win(one: Bounded[Plan]) -> bool:
        return bound(one) > best

    def run(one: Bounded[Plan]) -> Result:
        return simulate(one, best / ask.value(1.0, one.num_gpus))

    def after(one: Bounded[Plan], result: Result) -> None:
        nonlocal best, num_searched
        num_searched += not one.is_exact
        tally.num_simulated += 1
        results.append(result)
        best = max(best, ask.value(goodput(result), one.num_gpus))

    while left and can_win(left[0]) and num_searched < ask.most_simulated:
        room = min(WAVE, ask.most_simulated - num_searched)
        wave, left = left[:room], left[room:]
        tally.num_pruned += sum(not can_win(one) for one in wave)
        in_waves(wave, run, after, can_win)
    tally.num_pruned += sum(not can_win(one) for one in left)
    if left and can_win(left[0]):
        tally.gap = bound(left[0]) / best - 1 if best > 0 else math.inf
    return results, tally
