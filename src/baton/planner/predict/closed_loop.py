"""Times to the first token and between tokens of a closed loop, from operator times.

`concurrency` requests are in the deployment at any time: each waits for its prompt, decodes, and
is followed by another. Prompts queue at their ranks as in Schweitzer's mean value analysis; the
first requests of a run arrive all at once, and the mean of a run keeps a share of that burst.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from baton.hardware.operators.columns import Floats
from baton.planner.predict.features import Features
from baton.planner.predict.operating import CHUNK_TOKENS, TERMS

NUM_TIMES = len(TERMS) - 1
"""Terms that are times; the last one counts layers."""
_ITERATIONS = 40
_TYPICAL_BATCH, _TYPICAL_PROMPT = 16.0, 2048.0


@dataclass(frozen=True, kw_only=True)
class LoopTimes:
    """Milliseconds, one entry for each case."""

    ttft: Floats
    tpot: Floats


def loop_times(
    features: Features, operators: Floats, quantities: Mapping[str, Floats]
) -> LoopTimes:
    """Of every case at once: `operators` are factors of `TERMS`, `quantities` those of
    `effects.QUANTITIES`.
    """
    f, q = features, quantities
    split = f.is_split > 0
    running = np.minimum(f.batch, f.room)
    prefill = q["prefill"] * (f.num_prompt / _TYPICAL_PROMPT) ** q["length"]
    decode = q["decode"] * (running / _TYPICAL_BATCH) ** q["batch"]
    prompt, queued, mixed = (
        prefill * (one[:, :NUM_TIMES] @ operators) for one in (f.prompt, f.queued, f.mixed)
    )
    layers = q["layer_ms"] * f.prompt[:, NUM_TIMES]
    prompt, queued = prompt + layers, queued + layers * np.minimum(1, f.num_prompt / CHUNK_TOKENS)
    step = decode * (f.decode[:, :NUM_TIMES] @ operators) + q["step_ms"]
    stall = mixed * f.dp ** q["stall"]
    tpot = step + running / f.num_output * stall
    capacity = running * f.ranks
    first = _prompt_ms(queued / f.servers, prompt, f.num_output * tpot, capacity, q["queue"])
    decoding = f.num_output * tpot
    tpot = step + running * decoding / (decoding + first) / f.num_output * stall
    decoding = f.num_output * tpot
    excess = np.maximum(f.concurrency - capacity, 0.0) / capacity
    ttft = q["request_ms"] + 0.5 * np.where(split, 0.0, step) + first
    ttft = ttft + q["starve"] * excess * (first + decoding) + q["cold_ms"] / f.concurrency
    ttft = ttft + q["burst"] * np.minimum(f.concurrency, capacity) * queued / f.servers / 2
    return LoopTimes(ttft=ttft, tpot=tpot)


def _prompt_ms(
    each: Floats, alone: Floats, decoding: Floats, population: Floats, queue: Floats
) -> Floats:
    """From arrival to the first token: one's own prompt and, at `each` milliseconds, those of
    the requests that are found in prefill.
    """
    total = alone.copy()
    others = (population - 1.0) / population
    for _ in range(_ITERATIONS):
        rate = population / (total + decoding)
        total = 0.5 * total + 0.5 * (alone + queue * each * others * rate * total)
    return np.asarray(total, np.float64)
