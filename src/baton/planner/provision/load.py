"""Requests at any rate for so many seconds, drawn from a trace: the same ones for every fleet."""

import math
from dataclasses import dataclass, field

from baton.errors import ConfigError
from baton.planner.goodput.draws import Draws, Lengths, draw
from baton.sim.fast.workload import FastWorkload

DRAWN = 1 << 14
"""Requests are drawn in powers of two from this on, so that rates near each other share them."""
MIN_REQUESTS = 200
"""However slow they come: below that a P99 is the luck of one or two."""
MAX_REQUESTS = 1 << 20
"""Of one simulation: about a gigabyte of arrays."""
INDEPENDENT = Draws(lengths=Lengths.INDEPENDENT)
"""As Splitwise's own evaluation draws them; Poisson arrivals."""


@dataclass(frozen=True)
class Load:
    """A trace whose lengths are resampled, and for how long requests arrive."""

    trace: FastWorkload
    duration_s: float
    name: str = ""
    draws: Draws = INDEPENDENT
    _drawn: dict[tuple[int, int], FastWorkload] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < math.inf:
            raise ConfigError(
                f"--duration {self.duration_s:g}: seconds of arrivals, a finite number above 0"
            )
        if not self.draws.resamples:
            raise ConfigError("a load resamples lengths: draw them in pairs or independently")

    def at(self, rate_per_s: float, seed: int) -> FastWorkload:
        """The requests of a seed at a rate; arrivals are one draw, compressed (common numbers)."""
        num = self.num_requests(rate_per_s)
        return first(self.drawn(num, seed), num).at_rate(rate_per_s)

    def num_requests(self, rate_per_s: float) -> int:
        """That arrive within the duration, and never too few. Raises ConfigError for too many."""
        num = rate_per_s * self.duration_s
        if not num <= MAX_REQUESTS:
            raise ConfigError(
                f"{rate_per_s:g} requests/s for {self.duration_s:g} s are {num:.3g} requests; one "
                f"simulation takes {MAX_REQUESTS} at most: give a lower --rate (or --step), or a "
                "shorter --duration"
            )
        return max(MIN_REQUESTS, round(num))

    def drawn(self, num: int, seed: int) -> FastWorkload:
        """At least so many requests at one a second."""
        size = max(DRAWN, 1 << math.ceil(math.log2(num)))
        if (size, seed) not in self._drawn:
            self._drawn[size, seed] = draw(self.trace, size, seed, self.draws)
        return self._drawn[size, seed]

    def mean_lengths(self) -> tuple[float, float]:
        """Prompt and output tokens of the trace."""
        return float(self.trace.num_prompt.mean()), float(self.trace.num_output.mean())


def first(workload: FastWorkload, num: int) -> FastWorkload:
    """The first requests only."""
    end = int(workload.hash_offsets[num])
    return FastWorkload(
        arrival_us=workload.arrival_us[:num],
        num_prompt=workload.num_prompt[:num],
        num_output=workload.num_output[:num],
        hash_offsets=workload.hash_offsets[: num + 1],
        hash_ids=workload.hash_ids[:end],
        tokens_per_hash=workload.tokens_per_hash,
        source=workload.source,
    )
