"""What a provisioning search answers: a design space, its front, and how much of it was tried."""

import msgspec

from baton.goodput.interval import Estimate
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.probe import Probe


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one simulation: latencies at P50, P90 and P99, and the bound that is used most."""

    rate_per_s: float
    seed: int
    ttft_ms: tuple[float, float, float]
    tpot_ms: tuple[float, float, float]
    e2e_ms: tuple[float, float, float]
    binding: str
    use: float
    """Share of the binding bound; above 1 it is broken."""
    slowdowns: dict[str, float]
    busy: dict[str, float]
    num_requests: int
    num_completed: int


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet of the design space."""

    name: str
    fleet: Fleet
    num_machines: int
    cost: float
    power: float
    rate: Estimate
    """Requests/s within the bounds: the mean over seeds of the highest, or what was asked for."""
    binding: str
    figures: tuple[Figures, ...]
    """One for each seed, at the rate that was asked for or found."""
    is_on_front: bool = False
    """No other one here is better in one of cost, power, machines and rate, and nowhere worse."""
    same_as: str = ""
    """An equal fleet in all four that stands for it: the one with more room under its bounds."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All designs, best first by the objective, and on what they rest."""

    objective: str
    question: str
    constants: str
    cost_unit: str
    power_unit: str
    tbt: str
    load: str
    predictors: dict[str, str]
    """Of each machine type: where its step times come from."""
    seeds: tuple[int, ...]
    designs: tuple[Design, ...]
    statements: tuple[str, ...]
    """What was enumerated, what was not and why it cannot be better."""
    num_simulations: int
    warnings: tuple[str, ...] = ()
    """What the figures must not be read without."""


def figures(probe: Probe) -> Figures:
    """Of a probe."""
    binding = probe.verdict.binding
    return Figures(
        rate_per_s=probe.rate_per_s,
        seed=probe.seed,
        ttft_ms=probe.ttft_ms,
        tpot_ms=probe.tpot_ms,
        e2e_ms=probe.e2e_ms,
        binding=binding.name,
        use=binding.use,
        slowdowns={one.name: one.slowdown for one in probe.verdict.bounds},
        busy=probe.busy,
        num_requests=probe.num_requests,
        num_completed=probe.num_completed,
    )
