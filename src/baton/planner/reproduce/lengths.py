"""DistServe's workloads by its own recipes, from published length sets (and what stands in)."""

import csv
import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from baton.errors import ConfigError
from baton.planner.reproduce.context import Context
from baton.sim.fast.workload import FastWorkload

SHAREGPT = "lengths/sharegpt_v3_turns_gpt2_tokenizer.csv.gz"
HUMANEVAL = "lengths/humaneval_gpt2_tokenizer.csv"
SUMMARIES = "lengths/arxiv_summarization_llama2_tokenizer.csv"
MOST_TOKENS = 2048
LONGBENCH_OUTPUT = 90.7
"""Mean tokens of its answers, as published."""
RECIPE_SEED = 0


def sharegpt(context: Context) -> FastWorkload:
    """Conversations of at least 3 turns: the first k joined are the prompt, the next the answer."""
    rng = np.random.Generator(np.random.PCG64(RECIPE_SEED))
    pairs = []
    for turns in _conversations(context.file(SHAREGPT)):
        if len(turns) < 3:
            continue
        cut = int(rng.integers(1, len(turns)))
        pairs.append((sum(turns[:cut]), turns[cut]))
    kept = [one for one in pairs if min(one) > 0 and sum(one) < MOST_TOKENS]
    return _packed(kept, "ShareGPT V3, the first 17,671 conversations, GPT-2 tokens")


def humaneval(context: Context) -> FastWorkload:
    """Prompt and canonical solution; the tokenizer's own first token is added."""
    with context.file(HUMANEVAL).open(newline="") as stream:
        pairs = [
            (int(row["prompt_tokens"]) + 1, max(1, int(row["canonical_solution_tokens"])))
            for row in csv.DictReader(stream)
        ]
    return _packed(pairs, "HumanEval, GPT-2 tokens")


def long_prompts(context: Context) -> FastWorkload:
    """In LongBench's place: arXiv summaries, their prompts cut as DistServe cuts LongBench's.

    Those answers are longer than LongBench's; they are scaled to its published mean.
    """
    rng = np.random.Generator(np.random.PCG64(RECIPE_SEED))
    pairs = []
    with context.file(SUMMARIES).open(newline="") as stream:
        for row in csv.DictReader(stream):
            prompt, answer = int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])
            room = min(MOST_TOKENS - 8 - answer, int(rng.integers(1900, MOST_TOKENS)))
            if room > 0 and answer > 0:
                pairs.append((min(prompt, room), answer))
    scale = LONGBENCH_OUTPUT * len(pairs) / sum(answer for _, answer in pairs)
    scaled = [(prompt, max(1, round(answer * scale))) for prompt, answer in pairs]
    return _packed(
        scaled, f"arXiv summaries in LongBench's place, answers x {scale:.2f}, Llama-2 tokens"
    )


def fixed(num_prompt: int, num_output: int) -> FastWorkload:
    """One length."""
    return _packed([(num_prompt, num_output)], f"{num_prompt} in, {num_output} out")


def _conversations(path: Path) -> Iterable[list[int]]:
    with gzip.open(path, "rt", newline="") as stream:
        name, turns = "", list[int]()
        for row in csv.DictReader(stream):
            if row["conv"] != name:
                if turns:
                    yield turns
                name, turns = row["conv"], []
            turns.append(int(row["tokens"]))
        if turns:
            yield turns


def _packed(pairs: list[tuple[int, int]], source: str) -> FastWorkload:
    if not pairs:
        raise ConfigError(f"{source}: no request is left")
    lengths = np.array(pairs, np.int64)
    means = lengths.mean(axis=0)
    return FastWorkload(
        arrival_us=np.arange(len(pairs), dtype=np.float64) * 1e6,
        num_prompt=lengths[:, 0].copy(),
        num_output=lengths[:, 1].copy(),
        hash_offsets=np.zeros(len(pairs) + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        source=f"{source}: {len(pairs)} pairs, means {means[0]:.0f}/{means[1]:.0f}",
    )
