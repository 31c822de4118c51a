"""One simulation of a fleet at a rate, judged by the nine slowdowns."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from baton.goodput.slowdown import TBT, SlowdownTargets, SlowdownVerdict, judge_slowdowns
from baton.planner.provision.alone import Alone
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.load import Load
from baton.planner.provision.service import Service
from baton.planner.provision.slowdowns import slowdowns, surely_fails
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import Simulation
from baton.sim.fast.workload import FastWorkload

Floats = NDArray[np.float64]
Item = TypeVar("Item")
US_PER_MS, US_PER_S = 1000.0, 1e6
NUM_PARTS = 8
"""How often a simulation is looked at while requests arrive, whether it fails already."""


class Probe(NamedTuple):
    """What one simulation showed; latencies at P50, P90 and P99 in milliseconds."""

    rate_per_s: float
    seed: int
    verdict: SlowdownVerdict
    num_requests: int
    num_completed: int
    ttft_ms: tuple[float, float, float]
    tpot_ms: tuple[float, float, float]
    e2e_ms: tuple[float, float, float]
    completed_per_s: float
    """Within the time in which requests arrive, its first quarter, while it fills up, left out."""
    busy: dict[str, float]
    """Mean share of time that the machines of each pool compute while requests arrive."""
    counters: dict[str, int]

    @property
    def passes(self) -> bool:
        """All nine bounds hold."""
        return self.verdict.passes


@dataclass
class Prober:
    """Simulates what it has not simulated before."""

    service: Service
    load: Load
    targets: SlowdownTargets
    tbt: TBT = TBT.PER_GAP
    say: Callable[[str], None] | None = None
    """Told what was simulated, for a progress line."""
    _alone: Alone = field(init=False)
    _found: dict[tuple[Fleet, float, int], Probe] = field(default_factory=dict)
    _failed: set[tuple[Fleet, float, int]] = field(default_factory=set)
    _times: dict[tuple[int, int], tuple[Floats, Floats, Floats]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._alone = Alone(self.service.reference_curves)

    @property
    def num_simulated(self) -> int:
        """Simulations so far."""
        return len(self._found) + len(self._failed)

    @property
    def num_stopped(self) -> int:
        """Of them, those that were not simulated to their end."""
        return len(self._failed)

    def probe(self, fleet: Fleet, rate_per_s: float, seed: int) -> Probe:
        """To the end, once for each fleet, rate and seed."""
        key = (fleet, rate_per_s, seed)
        if key not in self._found:
            self._run(key, can_stop=False)
        return self._found[key]

    def passes(self, fleet: Fleet, rate_per_s: float, seed: int) -> bool:
        """The verdict alone: what surely breaks a bound is not simulated any further."""
        key = (fleet, rate_per_s, seed)
        if key not in self._found and key not in self._failed:
            self._run(key, can_stop=True)
        return key in self._found and self._found[key].passes

    def _run(self, key: tuple[Fleet, float, int], can_stop: bool) -> None:
        fleet, rate_per_s, seed = key
        workload = self.load.at(rate_per_s, seed)
        alone = self._reference(len(workload), seed)
        simulation = Simulation(self.service.deployment(fleet), workload)
        last_us = float(workload.arrival_us[-1])
        for part in range(1, NUM_PARTS * can_stop):
            now_us = last_us * part / NUM_PARTS
            simulation.run_until(now_us)
            if surely_fails(simulation.result(), workload, alone, self.targets, self.tbt, now_us):
                self._failed.add(key)
                self._tell(f"{fleet} at {rate_per_s:g}/s fails")
                return
        simulation.run_until()
        self._found[key] = found = self._judged(simulation.result(), workload, rate_per_s, seed)
        self._failed.discard(key)
        self._tell(f"{fleet} at {rate_per_s:g}/s: {found.verdict.binding}")

    def _tell(self, text: str) -> None:
        if self.say:
            self.say(text)

    def _judged(
        self, result: FastResult, workload: FastWorkload, rate_per_s: float, seed: int
    ) -> Probe:
        times = self._reference(len(workload), seed)
        verdict = judge_slowdowns(
            slowdowns(result, workload, times, self.tbt), self.targets, self.tbt
        )
        is_done = result.is_completed
        return Probe(
            rate_per_s=rate_per_s,
            seed=seed,
            verdict=verdict,
            num_requests=len(workload),
            num_completed=int(is_done.sum()),
            ttft_ms=_percentiles_ms(result.ttft_us[is_done]),
            tpot_ms=_percentiles_ms(result.tpot_us[is_done]),
            e2e_ms=_percentiles_ms(result.e2e_us[is_done]),
            completed_per_s=_throughput(result, float(workload.arrival_us[-1])),
            busy=_busy(result),
            counters=dict(result.counters),
        )

    def _reference(self, num: int, seed: int) -> tuple[Floats, Floats, Floats]:
        """TTFT, first decode step and all decode steps of each request alone."""
        drawn = self.load.drawn(num, seed)
        key = (len(drawn), seed)
        if key not in self._times:
            prompts, outputs = drawn.num_prompt, drawn.num_output
            self._times[key] = (
                self._alone.ttft_us(prompts),
                self._alone.step_us(prompts),
                self._alone.decode_us(prompts, outputs),
            )
        ttft, step, decode = self._times[key]
        return ttft[:num], step[:num], decode[:num]


def side_by_side(work: Callable[[int], Item], seeds: Sequence[int]) -> list[Item]:
    """For each seed; compiled simulations hold no lock, and none sees another's."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(work, seeds))


def _percentiles_ms(values: Floats) -> tuple[float, float, float]:
    values = values[~np.isnan(values)]
    if not len(values):
        return (np.nan, np.nan, np.nan)
    p50, p90, p99 = np.percentile(values, (50, 90, 99)) / US_PER_MS
    return float(p50), float(p90), float(p99)


def _throughput(result: FastResult, arrivals_end_us: float) -> float:
    begin = arrivals_end_us / 4
    inside = (result.last_us >= begin) & (result.last_us < arrivals_end_us) & result.is_completed
    return float(inside.sum()) / (arrivals_end_us - begin) * US_PER_S


def _busy(result: FastResult) -> dict[str, float]:
    pools: dict[str, list[float]] = {}
    for name, busy in zip(result.workers.names, result.workers.busy_us, strict=True):
        pools.setdefault(name.rsplit(" ", 1)[0] if " " in name else name, []).append(float(busy))
    return {
        pool: sum(values) / len(values) / result.duration_us if result.duration_us else 0.0
        for pool, values in pools.items()
    }
