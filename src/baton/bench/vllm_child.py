"""Runs inside a virtual environment that has vLLM, not Baton: times its engine's steps.

Speaks the lines of `baton.bench.steps`; imports nothing of ours, so any Python with vLLM runs it.
"""

import json
import os
import statistics
import sys
import time
from typing import Any

STEPS = 16


def main() -> None:
    """Load the model named on the first line of stdin, then answer cases."""
    start = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {start["core"]})
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(start["core"])
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM

    llm = LLM(
        model=start["model_path"],
        dtype="float32",
        max_model_len=start["max_model_len"],
        max_num_seqs=16,
        max_num_batched_tokens=max(2048, start["max_model_len"]),
        enforce_eager=True,
        enable_prefix_caching=False,
        block_size=32,
    )
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        case = json.loads(line)
        print("ms", _measure(llm.llm_engine, case["batch"], case["context"], number), flush=True)


def _measure(engine: Any, batch: int, context: int, number: int) -> float:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=STEPS + 4 if batch else 1, ignore_eos=True)
    for row in range(max(1, batch)):
        tokens = [256 + (row * 7919 + i * 104729 + i * i * 31) % 40000 for i in range(context)]
        engine.add_request(f"{number}-{row}", {"prompt_token_ids": tokens}, params)
    begin = time.perf_counter()
    started: set[str] = set()
    while len(started) < max(1, batch):  # until every prompt is through
        for output in engine.step():
            started.add(output.request_id)
    prefill_ms = 1000 * (time.perf_counter() - begin)
    durations = []
    while engine.has_unfinished_requests():
        begin = time.perf_counter()
        outputs = engine.step()
        duration_ms = 1000 * (time.perf_counter() - begin)
        if len(outputs) == batch:
            durations.append(duration_ms)
    return statistics.median(durations[:STEPS]) if batch else prefill_ms


if __name__ == "__main__":
    main()
