"""Traces and answers for tests of `baton plan`."""

import numpy as np

from baton.goodput.interval import Estimate
from baton.goodput.search import Bound
from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract, GoodputAnswer, SeedAnswer
from baton.planner.goodput.attained import Attained, Rule
from baton.planner.goodput.precision import asked

TARGETS = SLOTargets(ttft_us=500_000, tpot_us=30_000, attainment=0.9)


def write_trace(path, num=400, prompt=600, output=60, per_s=4.0, sigma=0.6, seed=0):
    """Log-normal lengths and Poisson arrivals in Azure's format."""
    rng = np.random.Generator(np.random.PCG64(seed))
    at_s = np.cumsum(rng.exponential(1 / per_s, num))
    prompts = np.maximum(1, rng.lognormal(np.log(prompt), sigma, num)).astype(int)
    outputs = np.maximum(1, rng.lognormal(np.log(output), sigma, num)).astype(int)
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for at, first, second in zip(at_s, prompts, outputs, strict=True):
        minutes, seconds = divmod(float(at), 60)
        stamp = f"2023-11-16 18:{int(minutes):02d}:{seconds:010.7f}"
        rows.append(f"{stamp},{first},{second}")
    path.write_text("\n".join(rows) + "\n")
    return path


def answer(rates, *, gpus=8, binding="tpot", ttft=0.95, tpot=0.91, precision=0.02, cells=1):
    """A goodput answer whose seeds found these rates; none: nothing passes."""
    attained = Attained(
        targets=TARGETS,
        rule=Rule(),
        num_counted=1000,
        num_ttft=round(1000 * ttft),
        num_tpot=round(1000 * tpot),
        num_e2e=1000,
        num_joint=round(1000 * min(ttft, tpot)),
    )
    mean = sum(rates) / len(rates) if rates else 0.0
    return GoodputAnswer(
        contract=Contract.PHASES,
        bound=Bound.FOUND if rates else Bound.LOWEST_FAILS,
        rate=Estimate(value=mean * cells, low=0.9 * mean, high=1.1 * mean, num=1000),
        num_gpus=gpus,
        binding=binding,
        at_rate=attained,
        seeds=tuple(
            SeedAnswer(
                seed=seed,
                bound=Bound.FOUND,
                rate_per_s=rate,
                failing_rate_per_s=rate * (1 + precision),
            )
            for seed, rate in enumerate(rates)
        ),
        probes=(),
        requests=asked(1000, max(3, len(rates))),
        relative_precision=precision,
    )
