"""The interval of a mean over a few independent repetitions (Student's t)."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from baton.errors import ConfigError
from baton.goodput.interval import Estimate, NothingToJudge


def student_quantile(probability: float, num_freedoms: int) -> float:
    """Of Student's distribution: exact for 1 and 2 degrees of freedom, to 0.1 % from 5 on.

    Between them the expansion around the normal quantile (Hill 1970) is within 1 % at 0.975.
    """
    if not 0 < probability < 1:
        raise ConfigError(f"probability = {probability}: between 0 and 1")
    if num_freedoms < 1:
        raise ConfigError(f"num_freedoms = {num_freedoms}: at least 1")
    if num_freedoms == 1:
        return math.tan(math.pi * (probability - 0.5))
    if num_freedoms == 2:
        side = 2 * probability - 1
        return side * math.sqrt(2 / (1 - side * side))
    z, n = NormalDist().inv_cdf(probability), float(num_freedoms)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def student_mean(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean of repetitions and its interval; `num` is their number."""
    if len(values) < 2:
        raise NothingToJudge(
            f"nothing to judge: {len(values)} repetitions show no spread; run at least 2"
        )
    if not all(math.isfinite(value) for value in values):
        raise ConfigError("a repetition's figure is not finite")
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    margin = student_quantile((1 + level) / 2, len(values) - 1) * math.sqrt(variance / len(values))
    return Estimate(value=mean, low=mean - margin, high=mean + margin, num=len(values), level=level)
