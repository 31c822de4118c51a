"""Simulations of one deployment at rates of a geometric grid, each at most once for each seed."""

import math
from typing import Protocol

import numpy as np

from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Probe
from baton.planner.goodput.attained import Attained, Rule, attain
from baton.planner.goodput.draws import Draws, draw
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.result import FastResult
from baton.sim.fast.workload import FastWorkload

AT_ONCE = 1e9
"""A rate at which all requests are there from the start."""
US_PER_S = 1e6
HOPELESS = 3.0
"""Times a request's whole allowance."""


class Asked(Protocol):
    """What a prober has to know of a search's settings."""

    @property
    def targets(self) -> SLOTargets:
        """What requests are judged by."""

    @property
    def rule(self) -> Rule:
        """Which of them count."""

    @property
    def relative_precision(self) -> float:
        """The ratio of neighbouring rates, less one."""


class Simulate(Protocol):
    """`simulate_fast`, or what stands in its place."""

    def __call__(
        self, deployment: Deployment, workload: FastWorkload, *, stop_us: float = math.inf
    ) -> FastResult:
        """What happened up to a moment."""


class Prober:
    """Step k of the grid is the rate (1 + precision) ** k requests a second."""

    def __init__(
        self,
        deployment: Deployment,
        workload: FastWorkload,
        asked: Asked,
        draws: Draws,
        simulate: Simulate,
    ) -> None:
        self.deployment = deployment
        self.log_step = math.log1p(asked.relative_precision)
        self.probes: list[Probe] = []
        self._workload = workload
        self._asked = asked
        self._draws = draws
        self._simulate = simulate
        self._drawn: dict[tuple[int, int], FastWorkload] = {}
        self._attained: dict[tuple[int, int, int], Attained] = {}
        self._residence_s: dict[tuple[int, int], float] = {}

    def rate(self, step: int) -> float:
        """Requests a second."""
        return math.exp(step * self.log_step)

    def step_at(self, rate_per_s: float) -> int:
        """The highest step that is not above a rate."""
        return math.floor(math.log(rate_per_s) / self.log_step + 1e-9)

    def attained(self, seed: int, num: int, step: int) -> Attained:
        """Of so many requests at one rate."""
        key = (seed, num, step)
        if key not in self._attained:
            result = self._run(seed, num, self.rate(step))
            found = attain(result, self._asked.targets, self._asked.rule)
            self._attained[key] = found
            self._residence_s[seed, step] = _residence_s(result)
            self.probes.append(
                Probe(seed=seed, rate_per_s=self.rate(step), num_requests=num, attained=found)
            )
        return self._attained[key]

    def hopeless(self, seed: int, num: int, step: int) -> Attained:
        """The same, cut off when whoever has not ended is several times too late on some clock.

        It then counts as late on every clock, so the shares are on the low side; for telling what
        fails for certain.
        """
        key = (seed, num, step)
        if key not in self._attained:
            requests = self._requests(seed, num).at_rate(self.rate(step))
            stop_us = self._last_us(requests)
            result = self._simulate(self.deployment, requests, stop_us=stop_us)
            found = attain(result, self._asked.targets, self._asked.rule)
            rate = self.rate(step)
            is_cut = math.isfinite(stop_us)
            self.probes.append(
                Probe(seed=seed, rate_per_s=rate, num_requests=num, attained=found, is_cut=is_cut)
            )
            return found
        return self._attained[key]

    def _last_us(self, requests: FastWorkload) -> float:
        """Several times behind the last moment at which a request may end that meets its targets.

        Endless where a clock that ends is not judged.
        """
        targets = self._asked.targets
        if targets.e2e_us is not None:
            longest = float(targets.e2e_us)
        elif targets.ttft_us is not None and targets.tpot_us is not None:
            longest = float(targets.ttft_us + targets.tpot_us * int(requests.num_output.max()))
        else:
            return math.inf
        return float(requests.arrival_us[-1]) + HOPELESS * longest

    def residence_s(self, seed: int, step: int) -> float:
        """Mean time of a completed request at a rate that was simulated before."""
        return self._residence_s[seed, step]

    def saturation(self, seed: int, num: int) -> int | None:
        """The rate at which all requests, sent at once, are worked off; None if none completes."""
        result = self._run(seed, num, AT_ONCE)
        num_completed = int(result.is_completed.sum())
        if not num_completed or not result.duration_us > 0:
            found = attain(result, self._asked.targets, self._asked.rule)
            self.probes.append(
                Probe(seed=seed, rate_per_s=AT_ONCE, num_requests=num, attained=found)
            )
            return None
        return self.step_at(num_completed * US_PER_S / result.duration_us)

    def _requests(self, seed: int, num: int) -> FastWorkload:
        if (seed, num) not in self._drawn:
            self._drawn[seed, num] = draw(self._workload, num, seed, self._draws)
        return self._drawn[seed, num]

    def _run(self, seed: int, num: int, rate_per_s: float) -> FastResult:
        return self._simulate(self.deployment, self._requests(seed, num).at_rate(rate_per_s))


def _residence_s(result: FastResult) -> float:
    times = result.e2e_us[result.is_completed]
    return float(np.mean(times)) / US_PER_S if len(times) else 0.0
