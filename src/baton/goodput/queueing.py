"""Mean times to first token of one queue in closed form, and where they hold (0x08B).

Requests come as a Poisson process and are served in order. The forms explain which parallelism a
rate prefers; a search uses profiles and simulation, for prompts of different lengths are not the
deterministic service that they assume.
"""

import math

from baton.errors import ConfigError


def mean_wait_s(rate_per_s: float, mean_s: float, second_moment_s2: float) -> float:
    """Pollaczek and Khinchine: the mean wait of M/G/1 before service."""
    _check_positive("mean_s", mean_s)
    if not second_moment_s2 >= mean_s * mean_s * (1 - 1e-12):
        raise ConfigError(
            f"second_moment_s2 = {second_moment_s2}: the mean of squares is at least the square of "
            f"the mean, {mean_s * mean_s:.6g}"
        )
    _check_below(rate_per_s, 1.0 / mean_s, "one server")
    return rate_per_s * second_moment_s2 / (2 * (1 - rate_per_s * mean_s))


def single_ttft_s(rate_per_s: float, service_s: float) -> float:
    """One device (M/D/1): D + R D^2 / (2 (1 - R D)), for R D < 1."""
    _check_positive("service_s", service_s)
    return service_s + mean_wait_s(rate_per_s, service_s, service_s * service_s)


def inter_op_ttft_s(rate_per_s: float, service_s: float) -> float:
    """Two pipeline stages: a request takes D still, and one leaves every D / 2, for R D < 2."""
    _check_positive("service_s", service_s)
    _check_below(rate_per_s, 2.0 / service_s, "two pipeline stages")
    load = rate_per_s * service_s
    return service_s + load * service_s / (4 * (2 - load))


def intra_op_ttft_s(rate_per_s: float, service_s: float, speedup: float) -> float:
    """Two tensor ranks: service takes D / K, for R D < K."""
    _check_positive("service_s", service_s)
    _check_speedup(speedup)
    return single_ttft_s(rate_per_s, service_s / speedup)


def crossover_load(speedup: float) -> float:
    """The load R D below which tensor ranks beat pipeline stages, and above which they lose.

    Equating both forms leaves x^2 - (K + 2) x + 8 K (K - 1) / (3 K - 2) = 0.
    """
    _check_speedup(speedup)
    half = (speedup + 2) / 2
    product = 8 * speedup * (speedup - 1) / (3 * speedup - 2)
    return half - math.sqrt(half * half - product)


def variation(mean_s: float, second_moment_s2: float) -> float:
    """By which factor waits exceed those of M/D/1 at the same mean service: E[S^2] / E[S]^2.

    1 for equal requests. Above it the deterministic forms are too short by that factor of the wait.
    """
    return mean_wait_s(0.5 / mean_s, mean_s, second_moment_s2) / (0.5 * mean_s)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} = {value}: must be finite and above 0")


def _check_speedup(speedup: float) -> None:
    if not 1 < speedup < 2:
        raise ConfigError(f"speedup = {speedup}: two ranks give more than 1 and less than 2")


def _check_below(rate_per_s: float, limit_per_s: float, what: str) -> None:
    if not 0 <= rate_per_s < limit_per_s:
        raise ConfigError(
            f"rate_per_s = {rate_per_s}: a queue before {what} is steady from 0 to below "
            f"{limit_per_s:.6g} requests a second"
        )
