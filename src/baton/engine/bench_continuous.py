"""The engine beside transformers' own continuous batching: same prompts, one core, alternated.

Each contender answers a whole batch, prefill included. `python -m baton.engine.bench_continuous
MODEL` prints one JSON object: seconds for both, and the median of the rounds' ratios.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from baton.config import ModelConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.engine import Engine
from baton.engine.loader import resolve_model

BATCHES = (1, 4, 16)
CONTEXT = 64
NEW_TOKENS = 8
BLOCK_SIZE = 16
_BLOCKS = (CONTEXT + NEW_TOKENS) // BLOCK_SIZE + 1
_STEP_ROWS = 512


def measure_continuous(path: Path, rounds: int = 3) -> dict[str, dict[str, float]]:
    """Seconds per batch of both contenders; a ratio below 1 means that ours is faster."""
    transformers.utils.logging.set_verbosity_error()
    engine = Engine.load(path, config=ModelConfig(self_test=False), block_size=BLOCK_SIZE)
    engine.bind_pool(None, max(BATCHES) * _BLOCKS)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path), dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    found: dict[str, dict[str, float]] = {}
    for batch in BATCHES:
        prompts = [[3 + (row * 31 + i * 7) % 200 for i in range(CONTEXT)] for row in range(batch)]
        pairs = []
        for number in range(rounds + 1):
            pair = (_seconds(_ours, engine, prompts), _seconds(_theirs, model, prompts))
            if number:  # the first round warms both up
                pairs.append(pair)
        found[f"batch {batch}"] = {
            "ours_s": statistics.median(a for a, _ in pairs),
            "transformers_s": statistics.median(b for _, b in pairs),
            "ratio": statistics.median(a / b for a, b in pairs),
        }
    return found


def _seconds(answer: Any, model: Any, prompts: list[list[int]]) -> float:
    begin = time.perf_counter()
    answer(model, prompts)
    return time.perf_counter() - begin


def _ours(engine: Engine, prompts: list[list[int]]) -> None:
    sequences = [list(prompt) for prompt in prompts]
    per_step = _STEP_ROWS // CONTEXT
    groups = [range(a, min(a + per_step, len(prompts))) for a in range(0, len(prompts), per_step)]
    for group in groups:
        _step(engine, sequences, group, CONTEXT)
    for _ in range(NEW_TOKENS - 1):
        _step(engine, sequences, range(len(prompts)), 1)


def _step(engine: Engine, sequences: list[list[int]], rows: range, count: int) -> None:
    items = tuple(
        WorkItem(
            request_id=str(row),
            generation=0,
            token_ids=tuple(sequences[row][-count:]),
            start=len(sequences[row]) - count,
            num_prompt_tokens=CONTEXT,
            block_table=tuple(range(row * _BLOCKS, (row + 1) * _BLOCKS)),
            sample=True,
            sampling=SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0),
        )
        for row in rows
    )
    result = engine.execute(Batch(batch_id=0, items=items))
    assert not result.error, result.error
    for row, sampled in zip(rows, result.sampled, strict=True):
        sequences[row].append(sampled.token_id)


def _theirs(model: Any, prompts: list[list[int]]) -> None:
    settings = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    # A pool of the size that these batches need, and one manager for all of them: otherwise
    # allocating and starting would be most of what is timed.
    batching = transformers.ContinuousBatchingConfig(
        page_size=BLOCK_SIZE, num_blocks=4 * max(BATCHES) * _BLOCKS, max_batch_tokens=_STEP_ROWS
    )
    outputs = model.generate_batch(
        inputs=prompts,
        generation_config=settings,
        continuous_batching_config=batching,
        progress_bar=False,
        persistent_manager=True,
    )
    assert all(len(output.generated_tokens) == NEW_TOKENS for output in outputs.values())


def main() -> None:
    """Measure the model named on the command line on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    print(json.dumps(measure_continuous(resolve_model(sys.argv[1]))))


if __name__ == "__main__":
    main()
