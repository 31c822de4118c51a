"""The workload of a run: requests that fit the server, with arrivals."""

import math

from baton.bench.load.settings import ArrivalSettings, DataSettings
from baton.bench.load.target import Abilities
from baton.errors import ConfigError
from baton.workload import arrivals
from baton.workload.distribution import Fixed, Lengths, Uniform
from baton.workload.fit import clip, scale
from baton.workload.load import load_trace
from baton.workload.request import Workload
from baton.workload.synthetic import synthesize

TEXT_MARGIN = 0.1
"""Of the context, left free where prompts are words whose tokens are only about known."""


def make_requests(data: DataSettings, abilities: Abilities, seed: int) -> Workload:
    """The requests, cut to what the server's context holds; every change is in the notes."""
    if data.path is None:
        prompt = _lengths(data.random_input_len, data.random_range_ratio, "--random-input-len")
        output = _lengths(data.random_output_len, data.random_range_ratio, "--random-output-len")
        workload = synthesize(data.num_prompts, prompt, output, seed=seed)
    else:
        workload = load_trace(data.path, data.format, limit=data.num_prompts)
    if data.scale_lengths != 1:
        workload = scale(workload, data.scale_lengths)
    if data.max_prompt_len is not None or data.max_output_len is not None:
        workload = clip(workload, max_prompt=data.max_prompt_len, max_output=data.max_output_len)
    context = abilities.max_model_len
    if context is None:
        return workload
    room = context if abilities.vocab_size else int(context * (1 - TEXT_MARGIN))
    longest = max(one.num_prompt_tokens + one.num_output_tokens for one in workload.requests)
    return workload if longest <= room else clip(workload, max_total=room)


def _lengths(length: int, ratio: float, flag: str) -> Lengths:
    if length < 1:
        raise ConfigError(f"{flag} {length}: at least 1 token")
    if not ratio:
        return Fixed(length=length)
    return Uniform(
        low=max(1, math.floor(length * (1 - ratio))), high=math.ceil(length * (1 + ratio))
    )


def schedule(workload: Workload, settings: ArrivalSettings, rate: float, seed: int) -> Workload:
    """The same requests at times drawn for this rate, or at the trace's own."""
    process = settings.process or _natural(workload, settings, rate)
    num = len(workload.requests)
    match process:
        case "trace":
            workload = workload if math.isinf(rate) else arrivals.rescale(workload, rate)
            return _slower(workload, settings.time_scale)
        case "all at once":
            times, how = arrivals.all_at_once(num), "all at once"
        case "constant":
            times, how = arrivals.constant(num, rate), f"constant at {rate:g}/s"
        case "gamma":
            times = arrivals.gamma(num, rate, settings.burstiness, seed)
            how = f"gamma at {rate:g}/s, burstiness {settings.burstiness:g}, seed {seed}"
        case _:
            times = arrivals.poisson(num, rate, seed)
            how = f"Poisson at {rate:g}/s, seed {seed}"
    return _slower(arrivals.with_arrivals(workload, times, f"arrivals: {how}"), settings.time_scale)


def _natural(workload: Workload, settings: ArrivalSettings, rate: float) -> str:
    if math.isinf(rate):
        return "trace" if workload.duration_us else "all at once"
    return "poisson" if settings.burstiness == 1 else "gamma"


def _slower(workload: Workload, factor: float) -> Workload:
    if factor == 1:
        return workload
    times = [round(one.arrival_us * factor) for one in workload.requests]
    return arrivals.with_arrivals(workload, times, f"arrival times multiplied by {factor:g}")


def offered_rate(workload: Workload) -> float | None:
    """Requests a second of the schedule; None when all come at once."""
    return arrivals.mean_rate(workload) if workload.duration_us else None


def reseeded(seed: int, probe: int) -> int:
    """A seed for one probe: other prompts, so that no probe finds the cache of another warm."""
    return seed + 1_000_003 * probe


def name_of(workload: Workload) -> dict[str, object]:
    """What a result says of its input."""
    return {
        "name": workload.name,
        "source": workload.source,
        "notes": list(workload.notes),
        "num_requests": len(workload.requests),
        "offered_rate": offered_rate(workload),
        "tokens_per_hash": workload.tokens_per_hash,
        "input_lens": _summary([one.num_prompt_tokens for one in workload.requests]),
        "output_lens": _summary([one.num_output_tokens for one in workload.requests]),
    }


def _summary(values: list[int]) -> dict[str, float]:
    return {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def describe(workload: Workload) -> str:
    """Name, size and lengths in one line."""
    prompts = _summary([one.num_prompt_tokens for one in workload.requests])
    outputs = _summary([one.num_output_tokens for one in workload.requests])
    rate = offered_rate(workload)
    return (
        f"{len(workload.requests)} requests of {workload.name}: "
        f"{prompts['mean']:.0f} prompt tokens (up to {prompts['max']:.0f}), "
        f"{outputs['mean']:.0f} output tokens (up to {outputs['max']:.0f}), "
        + (f"{rate:.3g} requests/s" if rate else "all at once")
    )
