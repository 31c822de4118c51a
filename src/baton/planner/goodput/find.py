"""The search: geometric steps to a bracket, then bisection, once for each seed.

Rates lie on one geometric grid, so that answers of different deployments are comparable and none
is simulated twice with one seed.
"""

import math
from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.goodput.search import Bound
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.planner.goodput.answer import Contract, GoodputAnswer, Length, SeedAnswer
from baton.planner.goodput.attained import Attained, Rule, summed
from baton.planner.goodput.draws import Draws, resampling
from baton.planner.goodput.precision import (
    LEVEL,
    MAX_REQUESTS,
    NUM_RESIDENCES,
    RequestCount,
    asked,
    capped,
    check_enough,
    needed,
    noise,
)
from baton.planner.goodput.prober import Prober, Simulate
from baton.planner.goodput.slope import slope_of
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

US_PER_S = 1e6
NUM_PILOT = 400
PILOT_RATIO = 1.25
"""How narrow the pilot's bracket is: wide enough to see the slope of attainment above its noise."""
NUM_OCTAVES = 14
"""How far below a saturated deployment's throughput the search goes before it gives up."""
LONGER = 4
"""Times as many requests that show whether a run was long enough."""
HEADROOM = 1.0
"""Octaves above that throughput at which a simulation that is long enough must fail."""
SURE = 3.0
"""Standard errors by which an incumbent's rate must fail for a candidate to be dropped."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a search; equal settings over equal inputs give equal answers."""

    targets: SLOTargets
    contract: Contract = Contract.PHASES
    relative_precision: float = 0.05
    seeds: tuple[int, ...] = (0, 1, 2)
    draws: Draws | None = None
    """None: `resampling` of the workload."""
    rule: Rule = Rule()
    num_requests: int | None = None
    """Of each simulation; None: as many as the precision needs."""
    num_residences: float = NUM_RESIDENCES
    most_requests: int | None = None
    """Of each simulation, whatever the precision needs."""
    settles: bool = True
    """Runs are lengthened until still longer ones change nothing; rankings do without."""

    def __post_init__(self) -> None:
        if not 0.0005 <= self.relative_precision <= 1:
            raise ConfigError(
                f"relative_precision = {self.relative_precision}: from 0.0005 to 1, such as 0.02"
            )
        if len(self.seeds) < 3 or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(
                f"seeds = {self.seeds}: give at least 3 different ones, or there is no interval"
            )


def find_goodput(
    deployment: Deployment,
    workload: FastWorkload,
    targets: SLOTargets,
    *,
    contract: Contract | str = Contract.PHASES,
    relative_precision: float = 0.05,
    seeds: Sequence[int] = (0, 1, 2),
    draws: Draws | None = None,
    rule: Rule | None = None,
    num_requests: int | None = None,
    incumbent_per_s: float = 0.0,
    simulate: Simulate = simulate_fast,
) -> GoodputAnswer:
    """The highest rate at which the contract still holds, in requests a second.

    A deployment that surely stays below `incumbent_per_s` is dropped after a pilot.
    """
    settings = Settings(
        targets=targets,
        contract=Contract(contract),
        relative_precision=relative_precision,
        seeds=tuple(seeds),
        draws=draws,
        rule=rule or Rule(),
        num_requests=num_requests,
    )
    return search(deployment, workload, settings, incumbent_per_s, simulate)


def search(
    deployment: Deployment,
    workload: FastWorkload,
    settings: Settings,
    incumbent_per_s: float = 0.0,
    simulate: Simulate = simulate_fast,
) -> GoodputAnswer:
    """`find_goodput` with its settings in one value."""
    draws = settings.draws or resampling(workload)
    prober = Prober(deployment, workload, settings, draws, simulate)
    found = _Search(prober, settings, None if draws.resamples else len(workload))
    return found.run(incumbent_per_s)


class _Search:
    """One search's state: where the last seed ended, and how many requests there are."""

    def __init__(self, prober: Prober, settings: Settings, num_in_trace: int | None) -> None:
        self._prober = prober
        self._settings = settings
        self._num_in_trace = num_in_trace
        self._target = settings.targets.attainment
        self._num_pilot = settings.num_requests or min(NUM_PILOT, num_in_trace or NUM_PILOT)
        self._floor = self._ceiling = 0
        self._length = Length.UNCHECKED

    def run(self, incumbent_per_s: float) -> GoodputAnswer:
        settings, prober = self._settings, self._prober
        seed = settings.seeds[0]
        stride = max(1, math.floor(math.log(PILOT_RATIO) / prober.log_step))
        if incumbent_per_s > 0 and self._surely_fails(seed, incumbent_per_s):
            return self._pruned(asked(self._num_pilot, len(settings.seeds)), incumbent_per_s)
        while True:
            top = prober.saturation(seed, self._num_pilot)
            count = asked(self._num_pilot, len(settings.seeds))
            if top is None:
                return self._nothing(count, 0.0, [])
            self._floor = top - math.ceil(NUM_OCTAVES * math.log(2) / prober.log_step)
            self._ceiling = top + math.ceil(HEADROOM * math.log(2) / prober.log_step)
            if not self._passes(seed, self._num_pilot, self._ceiling):
                break
            if not self._grow():
                return self._endless(count)
        passed, failed = self._bracket(seed, self._num_pilot, top, stride)
        if passed is None:
            return self._nothing(count, prober.rate(failed), [])
        if settings.num_requests is None:
            count = self._size(seed, passed, failed)
            if settings.most_requests is not None:
                count = capped(count, settings.most_requests)
            check_enough(count, self._num_in_trace)
        if settings.settles:
            count = self._settled(count, passed)
        return self._each_seed(count, passed, incumbent_per_s)

    def _grow(self) -> bool:
        """A longer pilot: one that passes above its own throughput ends before its queue shows."""
        if self._settings.num_requests is not None or self._num_pilot >= self._most:
            return False
        self._num_pilot = min(LONGER * self._num_pilot, self._most)
        return True

    @property
    def _most(self) -> int:
        """Requests that one simulation may have."""
        allowed = self._settings.most_requests or MAX_REQUESTS
        return min(self._num_in_trace or MAX_REQUESTS, allowed)

    def _settled(self, count: RequestCount, start: int) -> RequestCount:
        """So many that several times as many move the first seed's rate by one step at most.

        A caller's own number stays, with what came of the comparison.
        """
        seed = self._settings.seeds[0]
        while True:
            passed, failed = self._bracket(seed, count.per_seed, start, self._stride())
            passed, _ = self._bisect(seed, count.per_seed, passed, failed)
            is_asked = self._settings.num_requests is not None
            most = (self._num_in_trace or MAX_REQUESTS) if is_asked else self._most
            longer = min(LONGER * count.per_seed, most)
            if passed is None or longer <= count.per_seed:
                return count
            if self._passes(seed, longer, passed - 1):
                self._length = Length.SETTLED
                return count
            self._length = Length.UNSETTLED
            if is_asked:
                return count
            why = f"{longer} until their queue settled, though {count.why}"
            count = msgspec.structs.replace(count, per_seed=longer, why=why)
            start = passed

    def _each_seed(self, count: RequestCount, start: int, incumbent_per_s: float) -> GoodputAnswer:
        answers: list[SeedAnswer] = []
        at_rate: list[Attained] = []
        above: list[Attained] = []
        prober, stride = self._prober, self._stride()
        for seed in self._settings.seeds:
            passed, failed = self._bracket(seed, count.per_seed, start, stride)
            passed, failed = self._bisect(seed, count.per_seed, passed, failed)
            above.append(prober.attained(seed, count.per_seed, failed))
            if passed is None:
                return self._nothing(count, prober.rate(failed), above)
            at_rate.append(prober.attained(seed, count.per_seed, passed))
            answers.append(
                SeedAnswer(
                    seed=seed,
                    bound=Bound.FOUND if passed < failed else Bound.HIGHEST_PASSES,
                    rate_per_s=prober.rate(passed),
                    failing_rate_per_s=prober.rate(failed),
                )
            )
            start = passed
            if self._lags(answers[-1], at_rate[-1], incumbent_per_s):
                return self._pruned(count, incumbent_per_s)
        steps = [prober.step_at(one.rate_per_s) for one in answers]
        return self._answer(count, answers, self._pooled(count.per_seed, steps), summed(above))

    def _pooled(self, num: int, steps: Sequence[int]) -> int:
        """The highest rate near the seeds' own at which all their requests together pass."""
        step = round(sum(steps) / len(steps))
        if self._all_pass(num, step):
            while step < self._ceiling and self._all_pass(num, step + 1):
                step += 1
            return step
        while step > self._floor and not self._all_pass(num, step):
            step -= 1
        return step

    def _together(self, num: int, step: int) -> Attained:
        seeds = self._settings.seeds
        return summed([self._prober.attained(seed, num, step) for seed in seeds])

    def _all_pass(self, num: int, step: int) -> bool:
        return self._settings.contract.share(self._together(num, step)) >= self._target

    def _stride(self) -> int:
        """Seeds differ by about the asked precision: the next one starts with a narrow bracket."""
        return max(1, round(math.log(1.1) / self._prober.log_step))

    def _passes(self, seed: int, num: int, step: int) -> bool:
        attained = self._prober.attained(seed, num, step)
        return self._settings.contract.share(attained) >= self._target

    def _bracket(self, seed: int, num: int, start: int, stride: int) -> tuple[int | None, int]:
        """A rate that passes and a higher one that fails, not more than a stride apart.

        No such pair: even the lowest rate fails (None), or the highest passes (both are it).
        """
        if self._passes(seed, num, start):
            passed, width = start, stride
            while passed < self._ceiling:
                above = min(passed + width, self._ceiling)
                if not self._passes(seed, num, above):
                    return self._narrow(seed, num, passed, above, stride)
                passed, width = above, 2 * width
            return passed, passed
        if not self._passes(seed, num, self._floor):
            return None, self._floor
        failed, width = start, stride
        while failed - width > self._floor and not self._passes(seed, num, failed - width):
            failed, width = failed - width, 2 * width
        return self._narrow(seed, num, max(failed - width, self._floor), failed, stride)

    def _narrow(self, seed: int, num: int, passed: int, failed: int, width: int) -> tuple[int, int]:
        while failed - passed > width:
            middle = (passed + failed) // 2
            if self._passes(seed, num, middle):
                passed = middle
            else:
                failed = middle
        return passed, failed

    def _bisect(
        self, seed: int, num: int, passed: int | None, failed: int
    ) -> tuple[int | None, int]:
        return (None, failed) if passed is None else self._narrow(seed, num, passed, failed, 1)

    def _surely_fails(self, seed: int, rate_per_s: float) -> bool:
        step = self._prober.step_at(rate_per_s)
        attained = self._prober.hopeless(seed, self._num_pilot, step)
        num_effective = attained.num_counted / attained.inflation
        error = math.sqrt(self._target * (1 - self._target) / num_effective)
        return self._settings.contract.share(attained) < self._target - SURE * error

    def _lags(self, answer: SeedAnswer, attained: Attained, incumbent_per_s: float) -> bool:
        slope = self._slope(answer.rate_per_s)
        margin = 2 * noise(self._target, attained.num_counted / attained.inflation, slope)
        return answer.failing_rate_per_s * (1 + margin) < incumbent_per_s

    def _slope(self, rate_per_s: float) -> float:
        return slope_of(self._prober.probes, self._settings.contract, rate_per_s)

    def _size(self, seed: int, passed: int, failed: int) -> RequestCount:
        prober, settings = self._prober, self._settings
        return needed(
            target=self._target,
            slope=self._slope(prober.rate(passed)),
            inflation=max(
                prober.attained(seed, self._num_pilot, step).inflation for step in (passed, failed)
            ),
            relative_precision=settings.relative_precision,
            num_seeds=len(settings.seeds),
            counted_share=1 - settings.rule.warmup_share - settings.rule.cooldown_share,
            rate_per_s=prober.rate(passed),
            residence_s=prober.residence_s(seed, passed),
            num_residences=settings.num_residences,
            wait_s=(settings.targets.ttft_us or settings.targets.e2e_us or 0) / US_PER_S,
        )

    def _answer(
        self, count: RequestCount, answers: list[SeedAnswer], step: int, above: Attained
    ) -> GoodputAnswer:
        """The interval is the wider one of the seeds' spread and the noise of attainment."""
        at_rate, value = self._together(count.per_seed, step), self._prober.rate(step)
        spread = student_mean([one.rate_per_s for one in answers], LEVEL)
        num_effective = at_rate.num_counted / at_rate.inflation
        error = noise(self._target, num_effective, self._slope(value)) * value
        # The truth lies between a rate that passed and the next one of the grid.
        high = self._prober.rate(step + 1)
        rate = Estimate(
            value=value,
            low=max(0.0, min(spread.low, value - error)),
            high=max(spread.high, high + error),
            num=at_rate.num_counted,
            level=LEVEL,
        )
        return self._made(count, rate, Bound.FOUND, at_rate, above.binding, tuple(answers))

    def _nothing(
        self, count: RequestCount, failing_per_s: float, above: list[Attained]
    ) -> GoodputAnswer:
        """Even the lowest rate fails."""
        probes = self._prober.probes
        found = summed(above) if above else probes[-1].attained
        rate = Estimate(value=0.0, low=0.0, high=failing_per_s, num=found.num_counted, level=LEVEL)
        return self._made(count, rate, Bound.LOWEST_FAILS, found, found.binding, ())

    def _endless(self, count: RequestCount) -> GoodputAnswer:
        """Even far above its throughput the requests pass: there are too few of them."""
        passed = self._prober.probes[-1]
        rate = Estimate(
            value=passed.rate_per_s,
            low=passed.rate_per_s,
            high=math.inf,
            num=passed.attained.num_counted,
            level=LEVEL,
        )
        found = passed.attained
        return self._made(count, rate, Bound.HIGHEST_PASSES, found, found.binding, ())

    def _pruned(self, count: RequestCount, incumbent_per_s: float) -> GoodputAnswer:
        found = self._prober.probes[-1].attained
        rate = Estimate(
            value=0.0, low=0.0, high=incumbent_per_s, num=found.num_counted, level=LEVEL
        )
        answer = self._made(count, rate, Bound.FOUND, found, found.binding, ())
        return msgspec.structs.replace(answer, is_pruned=True)

    def _made(
        self,
        count: RequestCount,
        rate: Estimate,
        bound: Bound,
        at_rate: Attained,
        binding: str,
        seeds: tuple[SeedAnswer, ...],
    ) -> GoodputAnswer:
        return GoodputAnswer(
            contract=self._settings.contract,
            bound=bound,
            rate=rate,
            num_gpus=self._prober.deployment.num_gpus,
            binding=binding,
            at_rate=at_rate,
            seeds=seeds,
            probes=tuple(self._prober.probes),
            requests=count,
            relative_precision=self._settings.relative_precision,
            length=self._length,
        )
