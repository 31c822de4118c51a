"""One simulation of a fleet at a rate, judged by the nine slowdowns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.goodput.slowdown import TBT, SlowdownTargets, SlowdownVerdict, judge_slowdowns
from baton.planner.provision.alone import Alone
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.load import Load
from baton.planner.provision.service import Service
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.result import FastResult
from baton.sim.fast.workload import FastWorkload

Floats = NDArray[np.float64]
Simulate = Callable[[Deployment, FastWorkload], FastResult]
US_PER_MS, US_PER_S = 1000.0, 1e6


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
    simulate: Simulate
    tbt: TBT = TBT.PER_GAP
    on_probe: Callable[[Fleet, Probe], None] | None = None
    _alone: Alone = field(init=False)
    _found: dict[tuple[Fleet, float, int], Probe] = field(default_factory=dict)
    _times: dict[tuple[int, int], tuple[Floats, Floats, Floats]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._alone = Alone(self.service.reference_curves)

    @property
    def num_simulated(self) -> int:
        """Simulations so far."""
        return len(self._found)

    def probe(self, fleet: Fleet, rate_per_s: float, seed: int) -> Probe:
        """Simulated once for each fleet, rate and seed."""
        key = (fleet, rate_per_s, seed)
        if key not in self._found:
            workload = self.load.at(rate_per_s, seed)
            result = self.simulate(self.service.deployment(fleet), workload)
            self._found[key] = self._judged(result, workload, rate_per_s, seed)
            if self.on_probe:
                self.on_probe(fleet, self._found[key])
        return self._found[key]

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


def slowdowns(
    result: FastResult,
    workload: FastWorkload,
    alone: tuple[Floats, Floats, Floats],
    tbt: TBT,
) -> dict[str, Floats]:
    """Of every request by clock; infinite for one without its whole answer."""
    ttft, step, decode = alone
    num = workload.num_output.astype(np.float64)
    decoding = result.last_us - result.first_us
    with np.errstate(invalid="ignore", divide="ignore"):
        if tbt is TBT.PER_GAP:
            between = np.where(num >= 2, decoding / decode, np.nan)
        else:
            between = decoding / num / step
        found = {
            "ttft": result.ttft_us / ttft,
            "tbt": between,
            "e2e": result.e2e_us / (ttft + decode),
        }
    lost = ~result.is_completed
    for values in found.values():
        values[lost] = np.inf
    return found


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
