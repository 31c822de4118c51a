"""The highest rate that a fleet serves within the nine bounds, once for each seed."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.goodput.slowdown import Bound
from baton.goodput.student import student_mean
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.probe import Probe, Prober

MIN_SEEDS = 3
MAX_STEPS = 1 << 12


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rates are whole multiples of `step_per_s`: answers of different fleets are comparable."""

    step_per_s: float
    lowest_per_s: float = 0.0
    """Where the search begins; 0: at one step."""

    def __post_init__(self) -> None:
        if not self.step_per_s > 0 or self.lowest_per_s < 0:
            raise ConfigError(
                f"rates in steps of {self.step_per_s} from {self.lowest_per_s}: steps above 0"
            )

    def rate(self, step: int) -> float:
        """Of so many steps."""
        return step * self.step_per_s

    @property
    def first(self) -> int:
        """The lowest number of steps."""
        return max(1, round(self.lowest_per_s / self.step_per_s))


@dataclass(frozen=True, kw_only=True)
class SeedRate:
    """The highest rate that passed with one seed's requests, and why not more."""

    seed: int
    rate_per_s: float
    """0 when even the lowest rate fails."""
    binding: Bound
    """What broke at the next step of the grid."""


@dataclass(frozen=True, kw_only=True)
class FleetRate:
    """A fleet's highest rate over seeds."""

    fleet: Fleet
    rate: Estimate
    """The mean over seeds, with Student's interval."""
    step_per_s: float
    seeds: tuple[SeedRate, ...]

    @property
    def sure_per_s(self) -> float:
        """The rate at which every seed passes."""
        return min(one.rate_per_s for one in self.seeds)

    @property
    def binding(self) -> str:
        """The bounds that broke first, the most frequent first."""
        names = [one.binding.name for one in self.seeds]
        ordered = sorted(set(names), key=lambda name: (-names.count(name), name))
        return ", ".join(ordered)

    def __str__(self) -> str:
        return f"{self.fleet}: {self.rate}/s, {self.binding} binds"


def highest_rate(
    prober: Prober, fleet: Fleet, grid: Grid, seeds: Sequence[int], scout: Prober | None = None
) -> FleetRate:
    """For each seed by itself: strides that double from the lowest rate, then bisection.

    With a `scout`, which simulates for a shorter time, that search is the scout's, and the edge is
    walked to from where it ended. Both assume that a rate above one that fails fails too.
    """
    check_seeds(seeds)

    def one_seed(seed: int) -> SeedRate:
        def at(step: int) -> Probe:
            return prober.probe(fleet, grid.rate(step), seed)

        if scout is None:
            step, failed = _search(at, grid.first)
        else:
            near, _ = _search(lambda step: scout.probe(fleet, grid.rate(step), seed), grid.first)
            step, failed = _walk(at, grid.first, max(near, grid.first))
        return SeedRate(seed=seed, rate_per_s=grid.rate(step), binding=failed.verdict.binding)

    # Compiled simulations hold no lock, so seeds run side by side; none sees another's.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = tuple(pool.map(one_seed, seeds))
    return FleetRate(
        fleet=fleet,
        rate=student_mean([one.rate_per_s for one in found]),
        step_per_s=grid.step_per_s,
        seeds=found,
    )


def _walk(probe: Callable[[int], Probe], lowest: int, start: int) -> tuple[int, Probe]:
    """The edge next to a step: up while it passes, or down until it does."""
    step = start
    if probe(step).passes:
        while probe(step + 1).passes:
            step += 1
        return step, probe(step + 1)
    while step > lowest:
        step -= 1
        if probe(step).passes:
            return step, probe(step + 1)
    return 0, probe(lowest)


def _search(probe: Callable[[int], Probe], lowest: int) -> tuple[int, Probe]:
    """The last step that passes (0: none does), and the probe of the next one, which fails."""
    passing, failing, stride = 0, lowest, 1
    while probe(failing).passes:
        passing, failing, stride = failing, failing + stride, 2 * stride
        if failing > MAX_STEPS * lowest:
            raise ConfigError(
                f"still passes at step {passing} of a grid that begins at {lowest}; use larger ones"
            )
    while passing and failing - passing > 1:
        middle = (passing + failing) // 2
        if probe(middle).passes:
            passing = middle
        else:
            failing = middle
    return passing, probe(failing)


def meets(prober: Prober, fleet: Fleet, rate_per_s: float, seeds: Sequence[int]) -> bool:
    """Whether every seed passes at this rate; stops at the first that does not."""
    return all(prober.probe(fleet, rate_per_s, seed).passes for seed in seeds)


def check_seeds(seeds: Sequence[int]) -> None:
    """An interval needs some."""
    if len(seeds) < MIN_SEEDS or len(set(seeds)) != len(seeds):
        raise ConfigError(
            f"seeds = {tuple(seeds)}: give at least {MIN_SEEDS} different ones, or there is no "
            "interval"
        )
