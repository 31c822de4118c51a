"""How many requests a search needs for the precision that it is asked for, and why."""

import math
from statistics import NormalDist

import msgspec

from baton.errors import ConfigError

LEVEL = 0.95
NUM_RESIDENCES = 10
"""Of a mean request, that a simulation lasts at least: a tenth of it is warm-up by default."""
NUM_GROWTHS = 3
"""Times the time in which a queue that grows by the precision makes requests late: rates of shorter
runs are too high by the precision over this."""
LEAST = 200
MAX_REQUESTS = 400_000
"""Of one simulation; more is refused, with the number."""
LEAST_SLOPE = 0.1
"""Of attainment over the logarithm of the rate; a flatter one is noise of a short pilot."""


class RequestCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests each simulation has."""

    per_seed: int
    num_seeds: int
    for_precision: int
    """So that the binomial noise of attainment moves the rate by less than was asked."""
    for_duration: int
    """So that the simulation outlasts the requests in it, and its queue has the time to grow."""
    why: str

    def __str__(self) -> str:
        return f"{self.per_seed} requests for each of {self.num_seeds} seeds: {self.why}"


def asked(num: int, num_seeds: int) -> RequestCount:
    """The caller's own number."""
    if num < 1:
        raise ConfigError(f"num_requests = {num}: at least 1")
    return RequestCount(
        per_seed=num, num_seeds=num_seeds, for_precision=0, for_duration=0, why="as asked"
    )


def noise(target: float, num_effective: float, slope: float, level: float = LEVEL) -> float:
    """Half the interval of a rate relative to it, from the binomial noise of attainment alone.

    `slope` is how much attainment falls when the logarithm of the rate grows by one.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    # At a target of 1 the bound is that of the closest share below it that can be told apart.
    share = min(target, 1 - 1 / (num_effective + 1))
    return z * math.sqrt(share * (1 - share) / num_effective) / max(slope, LEAST_SLOPE)


def needed(
    *,
    target: float,
    slope: float,
    inflation: float,
    relative_precision: float,
    num_seeds: int,
    counted_share: float,
    rate_per_s: float,
    residence_s: float,
    num_residences: float = NUM_RESIDENCES,
    wait_s: float = 0.0,
) -> RequestCount:
    """From what a short pilot saw around its answer.

    At a rate too high by the precision a queue grows by that share of each second: requests wait
    longer than `wait_s`, what their targets allow, only after `wait_s / relative_precision`.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    steep = max(slope, LEAST_SLOPE)
    share = min(target, 0.999)
    total = share * (1 - share) * inflation * (z / (steep * relative_precision)) ** 2
    for_precision = math.ceil(total / num_seeds / counted_share)
    growth_s = NUM_GROWTHS * wait_s / relative_precision
    for_duration = math.ceil(rate_per_s * max(residence_s * num_residences, growth_s))
    per_seed = max(for_precision, for_duration, LEAST)
    why = (
        f"{for_precision} for a rate within {relative_precision:.2g} (attainment falls by "
        f"{steep:.2g} for each e-fold of the rate, {inflation:.2g} requests say as much as an "
        f"independent one), {for_duration} to last {num_residences:g} times "
        f"the {residence_s:.3g} s of a request and the {growth_s:.3g} s in which a queue grows "
        f"beyond its target at {rate_per_s:.3g}/s"
    )
    return RequestCount(
        per_seed=per_seed,
        num_seeds=num_seeds,
        for_precision=for_precision,
        for_duration=for_duration,
        why=why,
    )


def capped(count: RequestCount, most: int) -> RequestCount:
    """No more than so many, and that it is so."""
    if count.per_seed <= most:
        return count
    return msgspec.structs.replace(count, per_seed=most, why=f"{most} at most, though {count.why}")


def check_enough(count: RequestCount, num_in_trace: int | None) -> None:
    """Refuse what the trace or the machine cannot give, with the number; None: it is resampled."""
    if num_in_trace is not None and count.per_seed > num_in_trace:
        raise ConfigError(
            f"the trace is too short: it has {num_in_trace} requests, {count}; give a longer one, "
            f"or ask for {num_in_trace} requests at most: a rate that may be too high"
        )
    if count.per_seed > MAX_REQUESTS:
        raise ConfigError(
            f"the precision is too fine: {count}, and a simulation has at most {MAX_REQUESTS}; "
            "ask for a coarser one or use more seeds"
        )
