"""An arm at one rate: both clocks, what moved, and how far the step times were stretched."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.goodput.interval import Estimate
from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract
from baton.planner.goodput.attained import Attained, Bools, Rule, attain, summed
from baton.planner.goodput.draws import Draws, draw
from baton.planner.placement.found import Arm
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

US_PER_MS, US_PER_S = 1e3, 1e6
PERCENTILES = (50, 90, 99)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds over the judged requests of all seeds; None where there is none to tell."""

    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    share_ms: float | None = None
    """Within which the asked share of all judged requests is; None where fewer are served."""


class AtRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one rate does to an arm."""

    rate_per_s: float
    """Of the whole arm."""
    num_requests: int
    """Judged, over all seeds."""
    seeds: tuple[int, ...]
    ttft: Latency
    tpot: Latency
    ttft_met: Estimate
    tpot_met: Estimate
    joint_met: Estimate
    passes: bool
    """By the contract that was asked for."""
    num_unserved: int
    """Refused, too large for every worker, or failed."""
    moved_nbytes_per_s: float
    """K/V from prefill to decode, over the whole arm."""
    exposed_ms: float
    """Mean time from the end of prefill to the last byte: what no computation hides."""
    busy_share: float
    """Of the busiest group, the mean share of time that its workers compute."""
    extrapolated_share: float
    """Of all steps, those beyond what their source measured."""
    max_kv_share: float
    """Most K/V that a worker held at once, of what it can hold."""


def measure_at(
    arm: Arm,
    workload: FastWorkload,
    rate_per_s: float,
    *,
    targets: SLOTargets,
    contract: Contract,
    draws: Draws,
    rule: Rule,
    seeds: Sequence[int],
    num_requests: int,
) -> AtRate:
    """Simulate one part of the arm at its share of the rate, once for each seed."""
    share = rate_per_s / arm.num_cells
    results = [
        simulate_fast(arm.deployment, draw(workload, num_requests, seed, draws).at_rate(share))
        for seed in seeds
    ]
    return summed_up(arm, results, rate_per_s, targets, contract, rule, tuple(seeds))


def summed_up(
    arm: Arm,
    results: Sequence[FastResult],
    rate_per_s: float,
    targets: SLOTargets,
    contract: Contract,
    rule: Rule,
    seeds: tuple[int, ...],
) -> AtRate:
    """Requests of all seeds as one sample."""
    attained = summed([attain(result, targets, rule) for result in results])
    shares = attained.estimates()
    latencies = {
        name: _latency(
            np.concatenate([_judged(getattr(one, name), rule) for one in results]),
            np.concatenate([_judged(one.is_completed, rule) for one in results]),
            targets.attainment,
        )
        for name in ("ttft_us", "tpot_us")
    }
    return AtRate(
        rate_per_s=rate_per_s,
        num_requests=attained.num_counted,
        seeds=seeds,
        ttft=latencies["ttft_us"],
        tpot=latencies["tpot_us"],
        ttft_met=_wider(shares["ttft"], attained),
        tpot_met=_wider(shares["tpot"], attained),
        joint_met=_wider(shares["joint"], attained),
        passes=contract.share(attained) >= targets.attainment,
        num_unserved=sum(int((~result.is_completed).sum()) for result in results),
        **_resources(arm, results),
    )


def _judged(values: NDArray[Any], rule: Rule) -> NDArray[Any]:
    """Without those that are left out for warming up and cooling down."""
    num = len(values)
    return values[int(num * rule.warmup_share) : num - int(num * rule.cooldown_share)]


def _latency(values_us: NDArray[np.float64], is_completed: Bools, share: float) -> Latency:
    found = values_us[is_completed & ~np.isnan(values_us)] / US_PER_MS
    if not len(found):
        return Latency(mean_ms=None, p50_ms=None, p90_ms=None, p99_ms=None)
    p50, p90, p99 = (float(one) for one in np.percentile(found, PERCENTILES))
    return Latency(
        mean_ms=float(found.mean()),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        share_ms=_share_ms(values_us, is_completed, share),
    )


def _share_ms(values_us: NDArray[np.float64], is_completed: Bools, share: float) -> float | None:
    """The least target that so many meet: who is not served never does, a gap that does not exist
    always."""
    waits = np.where(is_completed, np.nan_to_num(values_us, nan=0.0), np.inf)
    num_needed = max(1, math.ceil(share * len(waits) - 1e-9))
    least = float(np.sort(waits)[num_needed - 1])
    return least / US_PER_MS if math.isfinite(least) else None


def _wider(share: Estimate, attained: Attained) -> Estimate:
    """Requests share a queue: the interval of independent ones is stretched by what that costs."""
    factor = attained.inflation**0.5
    low = share.value - (share.value - share.low) * factor
    high = share.value + (share.high - share.value) * factor
    return msgspec.structs.replace(share, low=max(0.0, low), high=min(1.0, high))


def _resources(arm: Arm, results: Sequence[FastResult]) -> dict[str, Any]:
    moved = sum(int(result.num_moved.sum()) for result in results)
    duration_us = sum(result.duration_us for result in results)
    handoff = arm.deployment.handoff
    nbytes = moved * handoff.token_nbytes if handoff is not None and arm.paths else 0
    exposed = np.concatenate([result.moved_us - result.prefill_end_us for result in results])
    exposed = np.maximum(exposed[~np.isnan(exposed)], 0.0) if arm.paths else np.zeros(0)
    num_steps = sum(int(result.workers.num_steps.sum()) for result in results)
    num_outside = sum(int(result.workers.num_extrapolated.sum()) for result in results)
    busy = np.sum([result.workers.busy_us for result in results], axis=0) / max(1.0, duration_us)
    held = np.max([result.workers.peak_tokens for result in results], axis=0)
    return {
        "moved_nbytes_per_s": arm.num_cells * nbytes / max(1.0, duration_us) * US_PER_S,
        "exposed_ms": float(exposed.mean()) / US_PER_MS if len(exposed) else 0.0,
        "busy_share": float(max(_by_group(arm.deployment, busy))),
        "extrapolated_share": num_outside / max(1, num_steps),
        "max_kv_share": float(np.max(held / _capacities(arm.deployment))),
    }


def _by_group(deployment: Deployment, values: NDArray[np.float64]) -> list[float]:
    means, start = [], 0
    for group in deployment.groups:
        means.append(float(values[start : start + group.num_workers].mean()))
        start += group.num_workers
    return means


def _capacities(deployment: Deployment) -> NDArray[np.float64]:
    return np.array(
        [group.kv_tokens for group in deployment.groups for _ in range(group.num_workers)],
        np.float64,
    )
