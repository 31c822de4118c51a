"""Splitwise's contract: percentiles of slowdown against the same request alone on one machine.

Nine bounds, TTFT, TBT and E2E at P50, P90 and P99, and all must hold. They are percentiles of each
clock by itself, not a share of requests that meet all clocks, and so weaker than a joint target.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.goodput.interval import NothingToJudge

Values = NDArray[np.float64]
CLOCKS = ("ttft", "tbt", "e2e")
PERCENTILES = (50, 90, 99)


class TBT(StrEnum):
    """What "time between tokens" of one request is; results name it, for they differ."""

    PER_TOKEN = "per_token"
    """(E2E - TTFT) / tokens, as Splitwise's simulator: one gap too few for its divisor."""
    PER_GAP = "per_gap"
    """(E2E - TTFT) / (tokens - 1), as TPOT is; a request of one token has none."""


class SlowdownTargets(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds of each clock at P50, P90 and P99; the defaults are Splitwise's (ISCA'24)."""

    ttft: tuple[float, float, float] = (2.0, 3.0, 6.0)
    tbt: tuple[float, float, float] = (1.25, 1.5, 5.0)
    e2e: tuple[float, float, float] = (1.25, 1.5, 5.0)

    def __post_init__(self) -> None:
        for clock in CLOCKS:
            bounds = getattr(self, clock)
            if not all(math.isfinite(one) and one > 0 for one in bounds):
                raise ConfigError(f"slowdown {clock} = {bounds}: three bounds above 0")
            if list(bounds) != sorted(bounds):
                raise ConfigError(f"slowdown {clock} = {bounds}: P50, P90 and P99 must not fall")

    def scaled(self, factor: float) -> "SlowdownTargets":
        """Every bound times a factor, for a sweep of tightness."""
        return SlowdownTargets(
            **{clock: tuple(factor * one for one in getattr(self, clock)) for clock in CLOCKS}
        )


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """One of the nine, and what was found."""

    clock: str
    percentile: int
    slowdown: float
    """Infinite where too many requests never got that far."""
    limit: float

    @property
    def use(self) -> float:
        """Share of the bound that is used; above 1 it is broken."""
        return self.slowdown / self.limit

    @property
    def name(self) -> str:
        """Such as "P90 TBT"."""
        return f"P{self.percentile} {self.clock.upper()}"

    def __str__(self) -> str:
        return f"{self.name} {self.slowdown:.3g} of {self.limit:g}"


class SlowdownVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The nine bounds of one run."""

    bounds: tuple[Bound, ...]
    tbt: TBT
    num_counted: int

    @property
    def passes(self) -> bool:
        """Whether all nine hold; a bound is met by reaching it exactly."""
        return all(one.slowdown <= one.limit for one in self.bounds)

    @property
    def binding(self) -> Bound:
        """The bound that is used most, met or broken."""
        return max(self.bounds, key=lambda one: one.use)

    def at(self, clock: str, percentile: int) -> float:
        """The slowdown of one clock at one percentile."""
        return next(
            one.slowdown
            for one in self.bounds
            if (one.clock, one.percentile) == (clock, percentile)
        )


def judge_slowdowns(
    slowdowns: Mapping[str, Values], targets: SlowdownTargets, tbt: TBT
) -> SlowdownVerdict:
    """From the slowdown of every request by clock.

    NaN is a request that has no such clock (one token has no gap) and does not count there;
    infinite is one that was refused, failed or never ended, and counts as the slowest of all.
    """
    bounds = []
    num_counted = 0
    for clock in CLOCKS:
        values = np.asarray(slowdowns[clock], np.float64)
        values = np.sort(values[~np.isnan(values)])
        num_counted = max(num_counted, len(values))
        if not len(values):
            raise NothingToJudge(f"nothing to judge: no request has a {clock.upper()}")
        for percentile, limit in zip(PERCENTILES, getattr(targets, clock), strict=True):
            found = _percentile(values, percentile)
            bounds.append(Bound(clock=clock, percentile=percentile, slowdown=found, limit=limit))
    return SlowdownVerdict(bounds=tuple(bounds), tbt=tbt, num_counted=num_counted)


def _percentile(ascending: Values, percentile: int) -> float:
    """Linear between neighbours as numpy's, but defined beside an infinite one."""
    place = percentile / 100 * (len(ascending) - 1)
    low = math.floor(place)
    below, share = float(ascending[low]), place - low
    if share == 0 or math.isinf(below):
        return below
    above = float(ascending[low + 1])
    return math.inf if math.isinf(above) else below + share * (above - below)
