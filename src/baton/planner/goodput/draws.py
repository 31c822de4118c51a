"""Requests for a simulation out of a trace, as arrays, one a second on average.

A rate is then a factor on their arrival times (`FastWorkload.at_rate`), so every rate and every
deployment sees the same requests and the same bursts.
"""

from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.sim.fast.workload import FastWorkload

US_PER_S = 1_000_000.0
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Arrivals(StrEnum):
    """When requests come."""

    POISSON = "poisson"
    GAMMA = "gamma"
    """Gaps of the coefficient of variation `cv`."""
    TRACE = "trace"
    """The trace's own gaps, stretched to the rate."""


class Lengths(StrEnum):
    """Which requests come."""

    PAIRS = "pairs"
    """Drawn with replacement, prompt and output of one request together."""
    INDEPENDENT = "independent"
    """Prompt and output of different requests (Splitwise)."""
    TRACE = "trace"
    """The trace's own sequence from a drawn place on, so shared prefixes stay near each other."""


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are drawn; the trace's own arrivals need its own sequence."""

    arrivals: Arrivals = Arrivals.POISSON
    cv: float = 1.0
    lengths: Lengths = Lengths.PAIRS

    def __post_init__(self) -> None:
        if not self.cv > 0:
            raise ConfigError(f"cv = {self.cv}: the gaps' coefficient of variation is above 0")
        if self.cv != 1.0 and self.arrivals is not Arrivals.GAMMA:
            raise ConfigError(f"cv = {self.cv}: only gamma arrivals have one; leave it at 1")
        if self.arrivals is Arrivals.TRACE and self.lengths is not Lengths.TRACE:
            raise ConfigError("arrivals of the trace need lengths of the trace: its own sequence")

    @property
    def resamples(self) -> bool:
        """Whether any number of requests can be drawn from a trace."""
        return self.lengths is not Lengths.TRACE

    def __str__(self) -> str:
        gaps = f"gamma gaps (CV {self.cv:g})" if self.arrivals is Arrivals.GAMMA else self.arrivals
        return f"{gaps} arrivals, lengths {self.lengths}"


def resampling(workload: FastWorkload) -> Draws:
    """A trace with shared prefixes keeps its sequence; any other is drawn from in pairs."""
    has_prefixes = bool(len(workload.hash_ids))
    return Draws(lengths=Lengths.TRACE if has_prefixes else Lengths.PAIRS)


def draw(workload: FastWorkload, num: int, seed: int, draws: Draws) -> FastWorkload:
    """`num` requests at one a second; equal arguments draw equal requests."""
    if num < 1 or not len(workload):
        raise ConfigError(f"cannot draw {num} requests from {len(workload)}; give at least one")
    if not draws.resamples and num > len(workload):
        raise ConfigError(
            f"{num} requests are needed, the trace has {len(workload)}: give a longer trace, or "
            "resample its lengths (pairs, independent)"
        )
    # Two generators: the arrivals of a seed are the same whatever is drawn for lengths.
    arrivals_rng, lengths_rng = (
        np.random.Generator(np.random.PCG64(one)) for one in np.random.SeedSequence(seed).spawn(2)
    )
    chosen, answers = _chosen(workload, num, lengths_rng, draws)
    offsets, ids = _prefixes(workload, chosen, draws)
    return FastWorkload(
        arrival_us=_arrivals(workload, chosen, arrivals_rng, draws),
        num_prompt=workload.num_prompt[chosen],
        num_output=workload.num_output[answers],
        hash_offsets=offsets,
        hash_ids=ids,
        tokens_per_hash=workload.tokens_per_hash,
        source=f"{workload.source}: {num} requests, {draws}, seed {seed}",
    )


def _chosen(
    workload: FastWorkload, num: int, rng: np.random.Generator, draws: Draws
) -> tuple[Ints, Ints]:
    """The requests that give the prompts, and those that give the outputs."""
    size = len(workload)
    if draws.lengths is Lengths.TRACE:
        start = int(rng.integers(0, size - num + 1))
        window = np.arange(start, start + num, dtype=np.int64)
        return window, window
    chosen = rng.integers(0, size, size=num)
    if draws.lengths is Lengths.PAIRS:
        return chosen, chosen
    return chosen, rng.integers(0, size, size=num)


def _arrivals(
    workload: FastWorkload, chosen: Ints, rng: np.random.Generator, draws: Draws
) -> Floats:
    num = len(chosen)
    if draws.arrivals is Arrivals.TRACE:
        return _stretched(workload.arrival_us[chosen])
    shape = draws.cv**-2
    gaps = rng.gamma(shape, US_PER_S / shape, size=num)
    gaps[0] = 0.0
    return _stretched(np.cumsum(gaps))


def _stretched(times: Floats) -> Floats:
    """From 0, at exactly one a second on average.

    A Poisson process of which the number of arrivals is known is still one; what goes is the noise
    of a rate that differs from the one that was asked for.
    """
    since = times - times[0]
    if len(times) > 1 and not since[-1] > 0:
        raise ConfigError(
            f"the trace's {len(times)} requests arrive all at once: they have no gaps to stretch; "
            "use poisson arrivals"
        )
    factor = (len(times) - 1) * US_PER_S / since[-1] if len(times) > 1 else 1.0
    stretched: Floats = since * factor
    return stretched


def _prefixes(workload: FastWorkload, chosen: Ints, draws: Draws) -> tuple[Ints, Ints]:
    """The ids of a window; requests drawn at random come without any."""
    if draws.lengths is not Lengths.TRACE or not len(workload.hash_ids):
        return np.zeros(len(chosen) + 1, np.int64), np.zeros(0, np.int64)
    offsets = workload.hash_offsets[chosen[0] : chosen[-1] + 2]
    return offsets - offsets[0], workload.hash_ids[offsets[0] : offsets[-1]]
