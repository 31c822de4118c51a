"""The highest rate whose attainment still meets its target: doubling, then bisection."""

import math
from collections.abc import Callable
from enum import StrEnum

import msgspec

from baton.errors import ConfigError, LocalProtocolError
from baton.goodput.attainment import Attainment


class Bound(StrEnum):
    """How a search ended."""

    FOUND = "found"
    LOWEST_FAILS = "even the lowest rate fails"
    HIGHEST_PASSES = "the highest rate still passes"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A goodput in requests a second.

    `rate` passed, and so did every measured rate below it; `failing_rate` is the lowest that
    failed. Without one the goodput is at least `rate`; when even the lowest fails, `rate` is None.
    """

    bound: Bound
    rate: float | None
    failing_rate: float | None

    def __str__(self) -> str:
        match self.bound:
            case Bound.FOUND:
                return f"{self.rate:g}/s passes, {self.failing_rate:g}/s fails"
            case Bound.LOWEST_FAILS:
                return f"below {self.failing_rate:g}/s: {self.bound}"
            case Bound.HIGHEST_PASSES:
                return f"at least {self.rate:g}/s: {self.bound}"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One rate that was measured, and what came of it."""

    rate: float
    attainment: Attainment


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """The answers for the two contracts, and every probe in the order of measurement."""

    phases: Answer
    """DistServe's: each target by itself is met by enough requests."""
    joint: Answer
    """Enough requests meet all targets at once."""
    resolution: float
    probes: tuple[Probe, ...]


class RateSearch:
    """The search in steps, for a caller that awaits its measurements.

    Both contracts share the probes and no rate is measured twice. Noise may make a rate fail and a
    higher one pass; the search then keeps below the lowest rate that failed.
    """

    def __init__(self, low: float, high: float, resolution: float) -> None:
        for name, value in (("low", low), ("high", high), ("resolution", resolution)):
            if not math.isfinite(value) or value <= 0:
                raise ConfigError(f"rate search: {name} = {value} must be finite and above 0")
        if high < low:
            raise ConfigError(f"rate search: high = {high} is below low = {low}; swap them")
        self._low = low
        self._high = high
        self._resolution = resolution
        self._probes: dict[float, Attainment] = {}

    def next_rate(self) -> float | None:
        """The rate to measure next; None when both contracts are answered."""
        for verdicts in (self._phases(), self._joint()):
            step = self._step(verdicts)
            if not isinstance(step, Answer):
                return step
        return None

    def observe(self, rate: float, attainment: Attainment) -> None:
        """What the rate that was asked for gave."""
        if rate != self.next_rate():
            raise LocalProtocolError(
                f"rate search: observed {rate}/s while {self.next_rate()}/s was asked for"
            )
        self._probes[rate] = attainment

    def result(self) -> Goodput:
        """The answers; only once there is no next rate."""
        phases, joint = self._step(self._phases()), self._step(self._joint())
        if not isinstance(phases, Answer) or not isinstance(joint, Answer):
            raise LocalProtocolError(
                f"rate search: not finished; measure {self.next_rate()}/s and observe it"
            )
        return Goodput(
            phases=phases,
            joint=joint,
            resolution=self._resolution,
            probes=tuple(Probe(rate=rate, attainment=one) for rate, one in self._probes.items()),
        )

    def _phases(self) -> dict[float, bool]:
        return {rate: one.phases_pass for rate, one in self._probes.items()}

    def _joint(self) -> dict[float, bool]:
        return {rate: one.joint_passes for rate, one in self._probes.items()}

    def _step(self, passed: dict[float, bool]) -> float | Answer:
        """The answer of one contract, or the rate that it needs."""
        fails = min((rate for rate, ok in passed.items() if not ok), default=None)
        passes = max(
            (rate for rate, ok in passed.items() if ok and (fails is None or rate < fails)),
            default=None,
        )
        if passes is None:
            if fails is None:
                return self._low
            return Answer(bound=Bound.LOWEST_FAILS, rate=None, failing_rate=fails)
        if fails is None:
            if passes >= self._high:
                return Answer(bound=Bound.HIGHEST_PASSES, rate=passes, failing_rate=None)
            return min(2 * passes, self._high)
        middle = (passes + fails) / 2
        # The second condition ends a resolution that is finer than numbers are.
        if fails - passes <= self._resolution or middle in (passes, fails):
            return Answer(bound=Bound.FOUND, rate=passes, failing_rate=fails)
        return middle


def find_goodput(
    measure: Callable[[float], Attainment], low: float, high: float, resolution: float
) -> Goodput:
    """Both goodputs between `low` and `high`, to within `resolution` requests a second."""
    search = RateSearch(low, high, resolution)
    while (rate := search.next_rate()) is not None:
        search.observe(rate, measure(rate))
    return search.result()
