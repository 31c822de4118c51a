"""Bootstrap percentile intervals with a seed: equal data and seed give equal bounds."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import BatonError, ConfigError

Values = NDArray[np.float64]
Statistic = Callable[[Values], Values]
"""From resamples, one a row, to one figure each."""
NUM_RESAMPLES = 2000
MAX_CELLS = 1 << 22
"""Resampled values held at once, 32 MiB of them."""


class NothingToJudge(BatonError):
    """No observation is left to compute a figure from; the text says why."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How an interval is drawn."""

    level: float = 0.95
    num_resamples: int = NUM_RESAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ConfigError(f"level = {self.level}: between 0 and 1, such as 0.95")
        if self.num_resamples < 100:
            raise ConfigError(
                f"num_resamples = {self.num_resamples}: at least 100, or the tails mean nothing"
            )

    def rng(self) -> np.random.Generator:
        """A generator of its own for each figure, so that figures do not depend on their order."""
        return np.random.Generator(np.random.PCG64(self.seed))


DEFAULT = Sampling()


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, the interval around it, and the number of observations behind it."""

    value: float
    low: float
    high: float
    num: int
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def times(self, factor: float) -> "Estimate":
        """The same figure in another unit."""
        return msgspec.structs.replace(
            self, value=self.value * factor, low=self.low * factor, high=self.high * factor
        )


def mean(rows: Values) -> Values:
    """The mean of each row."""
    means: Values = rows.mean(axis=1)
    return means


def percentile(q: float) -> Statistic:
    """The q-th percentile of each row, with numpy's linear interpolation."""
    if not 0 <= q <= 100:
        raise ConfigError(f"percentile = {q}: from 0 to 100")

    def statistic(rows: Values) -> Values:
        found: Values = np.percentile(rows, q, axis=1)
        return found

    return statistic


def bootstrap(
    values: Sequence[float], statistic: Statistic = mean, sampling: Sampling = DEFAULT
) -> Estimate:
    """A figure of independent observations."""
    data = _observations(values)
    drawn = _resample(len(data), sampling, lambda chosen: statistic(data[chosen]))
    return estimate(float(statistic(data[None, :])[0]), drawn, len(data), sampling)


def bootstrap_proportion(num_met: int, num: int, sampling: Sampling = DEFAULT) -> Estimate:
    """A fraction of `num` requests: as `bootstrap` of ones and zeros, without drawing each one.

    When all or none met, every resample is alike and the bootstrap would claim certainty; there the
    bounds are the exact binomial ones (Clopper-Pearson), which have a closed form.
    """
    if num < 1:
        raise NothingToJudge("nothing to judge: a fraction of 0 requests")
    if not 0 <= num_met <= num:
        raise ConfigError(f"num_met = {num_met} of num = {num}: must be from 0 to num")
    tail = ((1 - sampling.level) / 2) ** (1 / num)
    if num_met in (0, num):
        low, high = (tail, 1.0) if num_met else (0.0, 1 - tail)
        return Estimate(value=num_met / num, low=low, high=high, num=num, level=sampling.level)
    drawn = sampling.rng().binomial(num, num_met / num, size=sampling.num_resamples) / num
    return estimate(num_met / num, drawn, num, sampling)


def bootstrap_paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], sampling: Sampling = DEFAULT
) -> Estimate:
    """The mean of one arm over the mean of the other, when the i-th observations belong together.

    A pair (the same request, seed or repetition in both arms) is drawn as one, so what both arms
    share cancels.
    """
    above, below = _observations(numerators), _observations(denominators)
    if len(above) != len(below):
        raise ConfigError(
            f"{len(above)} numerators and {len(below)} denominators; give one pair for each"
        )
    if (below <= 0).any():
        raise ConfigError(
            f"denominator {float(below.min())}: a ratio needs values above 0 in that arm"
        )
    drawn = _resample(
        len(above), sampling, lambda chosen: mean(above[chosen]) / mean(below[chosen])
    )
    return estimate(float(above.mean() / below.mean()), drawn, len(above), sampling)


def bootstrap_clusters(
    clusters: Sequence[Sequence[float]], sampling: Sampling = DEFAULT
) -> Estimate:
    """The mean over all observations of repetitions, each of which is drawn whole.

    The requests of one run share its queue and are not independent; whole runs are. So the
    interval has the variation between runs, and `num` is their number.
    """
    if len(clusters) < 2:
        raise NothingToJudge(
            f"nothing to judge: {len(clusters)} repetitions show no spread; run at least 2"
        )
    data = [_observations(cluster) for cluster in clusters]
    sums = np.array([cluster.sum() for cluster in data])
    sizes = np.array([len(cluster) for cluster in data], dtype=np.float64)
    drawn = _resample(
        len(data), sampling, lambda chosen: sums[chosen].sum(axis=1) / sizes[chosen].sum(axis=1)
    )
    return estimate(float(sums.sum() / sizes.sum()), drawn, len(data), sampling)


def _observations(values: Sequence[float]) -> Values:
    data = np.asarray(values, dtype=np.float64)
    if not len(data):
        raise NothingToJudge("nothing to judge: 0 observations")
    if not np.isfinite(data).all():
        bad = int(np.flatnonzero(~np.isfinite(data))[0])
        raise ConfigError(f"observation {bad} is {data[bad]}: figures need finite numbers")
    return data


def _resample(
    num: int, sampling: Sampling, figure: Callable[[NDArray[np.int64]], Values]
) -> Values:
    """The figure of each resample, a bounded number of them at a time."""
    rng = sampling.rng()
    rows = max(1, min(sampling.num_resamples, MAX_CELLS // num))
    parts = []
    for start in range(0, sampling.num_resamples, rows):
        size = min(rows, sampling.num_resamples - start)
        parts.append(figure(rng.integers(0, num, size=(size, num))))
    return np.concatenate(parts)


def estimate(value: float, drawn: Values, num: int, sampling: Sampling) -> Estimate:
    """A figure of `num` observations with the percentile interval of its resamples."""
    margin = (1 - sampling.level) / 2 * 100
    low, high = np.percentile(drawn, [margin, 100 - margin])
    if not math.isfinite(value):
        raise ConfigError(f"the figure is {value}: its observations are too large")
    return Estimate(value=value, low=float(low), high=float(high), num=num, level=sampling.level)
