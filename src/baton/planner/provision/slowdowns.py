"""The slowdown of each request of a simulation, at its end or for certain before it."""

import math

import numpy as np
from numpy.typing import NDArray

from baton.goodput.slowdown import CLOCKS, PERCENTILES, TBT, SlowdownTargets
from baton.sim.fast.result import FastResult
from baton.sim.fast.workload import FastWorkload

Floats = NDArray[np.float64]
Alone = tuple[Floats, Floats, Floats]
"""TTFT, first decode step and all decode steps of each request alone."""


def slowdowns(
    result: FastResult, workload: FastWorkload, alone: Alone, tbt: TBT
) -> dict[str, Floats]:
    """Of every request by clock; infinite for one without its whole answer."""
    found = {
        "ttft": result.ttft_us / alone[0],
        "tbt": _between(result, workload, alone, tbt),
        "e2e": result.e2e_us / (alone[0] + alone[2]),
    }
    lost = ~result.is_completed
    for values in found.values():
        values[lost] = np.inf
    return found


def surely_fails(
    result: FastResult,
    workload: FastWorkload,
    alone: Alone,
    targets: SlowdownTargets,
    tbt: TBT,
    now_us: float,
) -> bool:
    """Whether a simulation that has come so far breaks a bound, whatever comes yet.

    A request that still waits is at least as slow as it is now. More such than a percentile leaves
    out, of all that will ever come, decide it.
    """
    least = _so_far(result, workload, alone, tbt, now_us)
    num_tokens = workload.num_output
    for clock in CLOCKS:
        has_none = clock == "tbt" and tbt is TBT.PER_GAP
        num = int((num_tokens >= 2).sum()) if has_none else len(num_tokens)
        for percentile, limit in zip(PERCENTILES, getattr(targets, clock), strict=True):
            place = math.floor(percentile / 100 * (num - 1))
            if int((least[clock] > limit).sum()) >= num - place:
                return True
    return False


def _so_far(
    result: FastResult, workload: FastWorkload, alone: Alone, tbt: TBT, now_us: float
) -> dict[str, Floats]:
    """A lower bound of each slowdown; 0 where nothing is known."""
    is_done = result.is_completed
    waited_us = np.maximum(0.0, now_us - workload.arrival_us)
    first_us = np.where(np.isnan(result.first_us), waited_us, result.ttft_us)
    whole_us = np.where(is_done, result.e2e_us, waited_us)
    between = np.where(is_done, _between(result, workload, alone, tbt), 0.0)
    return {
        "ttft": first_us / alone[0],
        "tbt": np.nan_to_num(between, nan=0.0),
        "e2e": whole_us / (alone[0] + alone[2]),
    }


def _between(result: FastResult, workload: FastWorkload, alone: Alone, tbt: TBT) -> Floats:
    num = workload.num_output.astype(np.float64)
    decoding: Floats = result.last_us - result.first_us
    with np.errstate(invalid="ignore", divide="ignore"):
        if tbt is TBT.PER_TOKEN:
            return decoding / num / alone[1]
        return np.where(num >= 2, decoding / alone[2], np.nan)
