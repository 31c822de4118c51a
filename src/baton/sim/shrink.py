"""Makes a failing plan small: fewer requests and faults, the same invariant broken."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from baton.sim.faults import FaultRates
from baton.sim.plan import Plan
from baton.sim.vopr import Outcome, run_plan

Item = TypeVar("Item")
_MAX_RUNS = 600


class _Budget:
    """Bounds the runs that shrinking may spend."""

    def __init__(self, checker: str) -> None:
        self.checker = checker
        self.num_left = _MAX_RUNS

    def still_fails(self, plan: Plan) -> bool:
        """True when the plan breaks the same invariant."""
        if self.num_left <= 0:
            return False
        self.num_left -= 1
        return run_plan(plan).checker == self.checker


def as_listed(plan: Plan, outcome: Outcome) -> Plan:
    """The same run with every counted fault written down instead of drawn."""
    return replace(plan, rates=FaultRates(), counted=outcome.applied, replayed=True)


def shrink(plan: Plan, outcome: Outcome) -> Plan:
    """The smallest plan found that breaks the invariant that `plan` breaks."""
    budget = _Budget(outcome.checker)
    listed = as_listed(plan, outcome)
    if not budget.still_fails(listed):
        return plan
    size = -1
    while size != _size(listed) and budget.num_left:
        size = _size(listed)
        for name in ("counted", "scheduled", "arrivals"):
            listed = _fewer(listed, name, budget)
        listed = _patient(listed, budget)
        if listed.clocks and budget.still_fails(calm := replace(listed, clocks={})):
            listed = calm
    return listed


def _size(plan: Plan) -> int:
    patient = sum(arrival.cancel_after_us < 0 for arrival in plan.arrivals)
    return 2 * len(plan.arrivals) + len(plan.scheduled) + len(plan.counted) - patient


def _fewer(plan: Plan, name: str, budget: _Budget) -> Plan:
    kept = _least(
        getattr(plan, name), lambda items: budget.still_fails(replace(plan, **{name: tuple(items)}))
    )
    return replace(plan, **{name: tuple(kept)})


def _patient(plan: Plan, budget: _Budget) -> Plan:
    """Clients that do not give up, where that does not matter."""
    for number, arrival in enumerate(plan.arrivals):
        if arrival.cancel_after_us < 0:
            continue
        arrivals = list(plan.arrivals)
        arrivals[number] = replace(arrival, cancel_after_us=-1)
        calmer = replace(plan, arrivals=tuple(arrivals))
        if budget.still_fails(calmer):
            plan = calmer
    return plan


def _least(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> Sequence[Item]:
    """Delta debugging: drop ever smaller pieces while the rest still fails."""
    piece = max(1, len(items) // 2)
    while items:
        start, dropped = 0, False
        while start < len(items):
            rest = [*items[:start], *items[start + piece :]]
            if fails(rest):
                items, dropped = rest, True
            else:
                start += piece
        if piece == 1 and not dropped:
            return items
        piece = max(1, piece // 2)
    return items
