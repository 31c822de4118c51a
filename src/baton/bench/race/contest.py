"""What is raced: a workload of given lengths at several rates, the same requests for every arm."""

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.workload.arrivals import with_arrivals
from baton.workload.distribution import LogNormal
from baton.workload.request import Workload
from baton.workload.synthetic import synthesize

US_PER_S = 1_000_000


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """A workload by its lengths, and the offered rates at which it is measured."""

    name: str
    title: str
    lengths: Workload
    """Lengths only; arrivals are drawn for each cell."""
    load_fractions: tuple[float, ...] = (0.4, 0.7, 1.0)
    """Offered rates over the split arm's capacity, where none are named."""
    ttft_scale: float = 0.0
    """TTFT target over the unloaded split where the contest is about it; 0: the race's own."""
    duration_scale: float = 1.0
    """Of the duration of a cell: many short requests say enough in less time."""

    @property
    def mean_prompt_tokens(self) -> float:
        """Arithmetic mean."""
        requests = self.lengths.requests
        return sum(r.num_prompt_tokens for r in requests) / len(requests)

    @property
    def mean_output_tokens(self) -> float:
        """Arithmetic mean."""
        requests = self.lengths.requests
        return sum(r.num_output_tokens for r in requests) / len(requests)

    def cell(self, rate: float, duration_s: float, seed: int) -> Workload:
        """Arrivals over a duration; equal seeds draw the same requests at every rate.

        They are a Poisson process under the condition that as many arrive as the rate promises:
        so few requests of a free one would often come at another rate than the one offered.
        """
        span_us = duration_s * self.duration_scale * US_PER_S
        num = max(1, round(rate * span_us / US_PER_S))
        requests = self.lengths.requests
        start = seed * 37 % len(requests)
        chosen = tuple(requests[(start + i) % len(requests)] for i in range(num))
        lengths = msgspec.structs.replace(self.lengths, requests=chosen)
        rng = np.random.Generator(np.random.PCG64(seed))
        times = np.sort(rng.uniform(0, span_us, num)).astype(int).tolist()
        return with_arrivals(lengths, times, f"{num} uniform in {span_us / 1e6:g} s, seed {seed}")


def long_prompts(num: int = 512, seed: int = 11) -> Contest:
    """Prompt-heavy, the shape of coding assistants at a size for small models."""
    prompt = LogNormal(mean=260, sigma=0.5, cap=700)
    output = LogNormal(mean=16, sigma=0.3, cap=32)
    return Contest(
        name="long-prompt",
        title="prompts of 260 tokens, outputs of 16 (lognormal means)",
        lengths=synthesize(num, prompt, output, seed=seed),
    )


def short_prompts(num: int = 512, seed: int = 12) -> Contest:
    """Decode-heavy, the shape of chat."""
    prompt = LogNormal(mean=24, sigma=0.4, cap=64)
    output = LogNormal(mean=40, sigma=0.3, cap=80)
    return Contest(
        name="short-prompt",
        title="prompts of 24 tokens, outputs of 40 (lognormal means)",
        lengths=synthesize(num, prompt, output, seed=seed),
        load_fractions=(0.8, 1.25, 1.7),
        ttft_scale=1.6,
        duration_scale=0.4,
    )


def trace_contest(lengths: Workload, max_model_len: int) -> Contest:
    """A user's own trace, its lengths in their order; raises ConfigError where none fits."""
    fitting = [
        request
        for request in lengths.requests
        if request.num_prompt_tokens + request.num_output_tokens < max_model_len
    ]
    if not fitting:
        raise ConfigError(
            f"{lengths.name}: no request fits a context of {max_model_len} tokens; "
            "scale its lengths down with --scale-lengths"
        )
    notes = (*lengths.notes, f"{len(lengths.requests) - len(fitting)} too long ones left out")
    return Contest(
        name=lengths.name,
        title=lengths.source,
        lengths=msgspec.structs.replace(lengths, requests=tuple(fitting), notes=notes),
    )


def parse_rates(text: str) -> tuple[float, ...]:
    """Ascending offered rates in requests a second; raises ConfigError on a bad one."""
    found = set()
    for piece in text.replace(",", " ").split():
        try:
            rate = float(piece)
        except ValueError:
            raise ConfigError(f"--rates {piece!r}: not a number; write 0.5,1,2") from None
        if not 0 < rate < 10_000:
            raise ConfigError(f"--rates {rate:g}: a rate is above 0 and below 10000 requests/s")
        found.add(rate)
    return tuple(sorted(found))
