"""Goodput of an arm from a few measured rates, and the ratio of two arms (0x0A)."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.goodput.interval import DEFAULT, Estimate, Sampling, estimate

Met = Sequence[bool]
"""One entry for each counted request of a rate: did it meet its targets?"""


class GoodputCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment by offered rate, and the highest rate at the target."""

    rates: tuple[float, ...]
    attainments: tuple[float, ...]
    goodput: Estimate
    is_below_range: bool
    """The lowest rate fails already: the goodput is 0 within what was measured."""
    is_above_range: bool
    """The highest rate passes still: the goodput is at least that rate."""


def goodput_at(rates: Sequence[float], attained: Sequence[float], target: float) -> float:
    """The highest rate whose attainment is at least the target, in the unit of `rates`.

    Between the last rate that passes and the first that fails the attainment is taken as linear;
    one that passes again behind a failure does not count. 0 when the lowest rate fails.
    """
    passed_rate, passed = 0.0, None
    for rate, attainment in zip(rates, attained, strict=True):
        if attainment >= target:
            passed_rate, passed = rate, attainment
            continue
        if passed is None or passed == attainment:
            return passed_rate
        share = (passed - target) / (passed - attainment)
        return passed_rate + share * (rate - passed_rate)
    return passed_rate


def goodput_curves(
    arms: Mapping[str, Mapping[float, Met]], target: float, sampling: Sampling = DEFAULT
) -> dict[str, GoodputCurve]:
    """The curve of each arm. Arms answer the same requests, so resamples draw them together."""
    drawn = _resampled(arms, target, sampling)
    curves = {}
    for name, by_rate in arms.items():
        rates, attained = _attained(by_rate)
        value = goodput_at(rates, attained, target)
        curves[name] = GoodputCurve(
            rates=rates,
            attainments=attained,
            goodput=estimate(value, drawn[name], _num_requests(by_rate), sampling),
            is_below_range=attained[0] < target,
            is_above_range=all(one >= target for one in attained),
        )
    return curves


def goodput_ratio(
    arms: Mapping[str, Mapping[float, Met]],
    above: str,
    below: str,
    target: float,
    sampling: Sampling = DEFAULT,
) -> Estimate | None:
    """Goodput of one arm over another's, paired; None when the latter has none to divide by.

    Resamples in which the lower arm passes at no rate count as the lowest measured rate, which
    understates the ratio.
    """
    drawn = _resampled({above: arms[above], below: arms[below]}, target, sampling)
    values = {name: goodput_at(*_attained(arms[name]), target) for name in (above, below)}
    if not values[below]:
        return None
    floor = min(arms[below])
    ratios = drawn[above] / np.maximum(drawn[below], floor)
    return estimate(values[above] / values[below], ratios, _num_requests(arms[above]), sampling)


def _resampled(
    arms: Mapping[str, Mapping[float, Met]], target: float, sampling: Sampling
) -> dict[str, NDArray[np.float64]]:
    """Goodputs of each arm over resamples of the requests, the same ones for every arm."""
    sizes: dict[float, int] = {}
    for name, by_rate in arms.items():
        if not by_rate or not all(len(met) for met in by_rate.values()):
            raise ConfigError(f"arm {name}: a rate without requests; there is nothing to judge")
        for rate, met in by_rate.items():
            if sizes.setdefault(rate, len(met)) != len(met):
                raise ConfigError(f"arm {name}: other requests than its rivals at rate {rate:g}")
    rng = sampling.rng()
    chosen = {
        rate: rng.integers(0, num, size=(sampling.num_resamples, num))
        for rate, num in sorted(sizes.items())
    }
    goodputs = {}
    for name, by_rate in arms.items():
        rates = sorted(by_rate)
        means = [np.asarray(by_rate[rate], float)[chosen[rate]].mean(axis=1) for rate in rates]
        rows = np.stack(means, axis=1)
        goodputs[name] = np.array([goodput_at(rates, row, target) for row in rows.tolist()])
    return goodputs


def _attained(by_rate: Mapping[float, Met]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ascending rates, and the attainment at each."""
    rates = tuple(sorted(by_rate))
    return rates, tuple(float(np.mean(by_rate[rate])) for rate in rates)


def _num_requests(by_rate: Mapping[float, Met]) -> int:
    return sum(len(met) for met in by_rate.values())
