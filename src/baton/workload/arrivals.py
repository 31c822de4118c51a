"""When requests arrive: processes with a seed, or a trace's own arrivals at another rate.

Arrivals are microseconds from the start of the run and the first one is 0, as in a loaded trace,
so n requests have n - 1 gaps and their mean rate is (n - 1) / duration.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.workload.check import check_num, check_positive, check_rate
from baton.workload.request import Workload

US_PER_S = 1_000_000


def all_at_once(num: int) -> tuple[int, ...]:
    """Everything at the start: the offline case, or a rate without bound."""
    check_num(num)
    return (0,) * num


def constant(num: int, rate: float) -> tuple[int, ...]:
    """Equal gaps."""
    check_num(num)
    check_rate(rate)
    return tuple(round(index * US_PER_S / rate) for index in range(num))


def poisson(num: int, rate: float, seed: int) -> tuple[int, ...]:
    """Independent arrivals: exponential gaps of mean 1 / rate."""
    return gamma(num, rate, 1.0, seed)


def gamma(num: int, rate: float, burstiness: float, seed: int) -> tuple[int, ...]:
    """Gamma gaps of mean 1 / rate and shape `burstiness`, as vLLM's --burstiness has it.

    1 is Poisson, less is burstier, more is more regular: the coefficient of variation of the gaps
    is burstiness ** -0.5.
    """
    check_num(num)
    check_rate(rate)
    check_positive(burstiness, "burstiness")
    rng = np.random.Generator(np.random.PCG64(seed))
    gaps_us = rng.gamma(burstiness, US_PER_S / (rate * burstiness), size=num - 1)
    return (0, *(round(at_us) for at_us in np.cumsum(gaps_us).tolist()))


def with_arrivals(workload: Workload, times_us: Sequence[int], note: str = "") -> Workload:
    """The same requests at these times, in the order that they have; `note` says what times."""
    if len(times_us) != len(workload.requests):
        raise ConfigError(
            f"{len(times_us)} arrival times for {len(workload.requests)} requests of "
            f"{workload.name!r}; draw one for each"
        )
    if times_us and times_us[0] < 0:
        raise ConfigError(f"arrival time {times_us[0]} us: a run starts at 0")
    for index, (before, after) in enumerate(pairwise(times_us), start=1):
        if after < before:
            raise ConfigError(
                f"arrival time {index} is {after} us after one of {before} us; sort the times"
            )
    return msgspec.structs.replace(
        workload,
        requests=tuple(
            msgspec.structs.replace(request, arrival_us=int(at_us))
            for request, at_us in zip(workload.requests, times_us, strict=True)
        ),
        notes=(*workload.notes, *([note] if note else [])),
    )


def mean_rate(workload: Workload) -> float:
    """Requests a second between the first arrival and the last."""
    requests = workload.requests
    span_us = requests[-1].arrival_us - requests[0].arrival_us if requests else 0
    if not span_us:
        raise ConfigError(
            f"workload {workload.name!r} has no arrivals of its own: its {len(requests)} requests "
            "arrive at once; draw some with poisson, gamma or constant"
        )
    return (len(requests) - 1) * US_PER_S / span_us


def rescale(workload: Workload, rate: float) -> Workload:
    """The trace's own arrivals stretched or compressed to a mean rate; their shape stays.

    A silence of the trace is stretched with the rest, so its bursts stay as bursty.
    """
    check_rate(rate)
    factor = mean_rate(workload) / rate
    times_us = [round(request.arrival_us * factor) for request in workload.requests]
    note = f"own arrivals times {factor:.6g}, to a mean rate of {rate:g}/s"
    return with_arrivals(workload, times_us, note)
