"""The highest rate that a fleet serves within the nine bounds, once for each seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.goodput.slowdown import Bound
from baton.goodput.student import student_mean
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.probe import Prober, side_by_side

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
        def passes(step: int) -> bool:
            return prober.passes(fleet, grid.rate(step), seed)

        if scout is None:
            step = _search(passes, grid.first)
        else:
            near = _search(lambda step: scout.passes(fleet, grid.rate(step), seed), grid.first)
            step = _walk(passes, grid.first, max(near, grid.first))
        above = prober.probe(fleet, grid.rate(step + 1 if step else grid.first), seed)
        return SeedRate(seed=seed, rate_per_s=grid.rate(step), binding=above.verdict.binding)

    found = tuple(side_by_side(one_seed, seeds))
    return FleetRate(
        fleet=fleet,
        rate=student_mean([one.rate_per_s for one in found]),
        step_per_s=grid.step_per_s,
        seeds=found,
    )


def _walk(passes: Callable[[int], bool], lowest: int, start: int) -> int:
    """The edge next to a step: up while it passes, or down until it does; 0 where none does."""
    step = start
    if passes(step):
        while passes(step + 1):
            step += 1
        return step
    while step > lowest:
        step -= 1
        if passes(step):
            return step
    return 0


def _search(passes: Callable[[int], bool], lowest: int) -> int:
    """The last step that passes before one that does not; 0 where none does."""
    passing, failing, stride = 0, lowest, 1
    while passes(failing):
        passing, failing, stride = failing, failing + stride, 2 * stride
        if failing > MAX_STEPS * lowest:
            raise ConfigError(
                f"still passes at step {passing} of a grid that begins at {lowest}; use larger ones"
            )
    while passing and failing - passing > 1:
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing


def meets(prober: Prober, fleet: Fleet, rate_per_s: float, seeds: Sequence[int]) -> bool:
    """Whether every seed passes at this rate; stops at the first that does not."""
    return all(prober.passes(fleet, rate_per_s, seed) for seed in seeds)


def check_seeds(seeds: Sequence[int]) -> None:
    """An interval needs some."""
    if len(seeds) < MIN_SEEDS or len(set(seeds)) != len(seeds):
        raise ConfigError(
            f"seeds = {tuple(seeds)}: give at least {MIN_SEEDS} different ones, or there is no "
            "interval"
        )
