"""`python -m baton.engine.bench [MODEL]`: the engine against transformers in one interleaved run.

Each round times every contender once, so that noise of the machine hits all of them; reported are
medians of the thread's CPU time, and medians of the per-round ratios. Run it pinned to one core:
`taskset -c 0 python -m baton.engine.bench`.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baton.config import ModelConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine import kernels
from baton.engine.engine import Engine

CONTEXT = 512
BATCHES = (1, 4, 16)
_GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
_READ_NBYTES = 256 << 20


def measure(path: Path, rounds: int = 5, block_size: int = 16) -> dict[str, Any]:
    """Times in ms: prefill of 512 tokens, and decode steps at 512 tokens for 1, 4, 16 sequences.

    `ratio` is ours over transformers' forward with DynamicCache (what `generate` runs per step;
    below 1 is faster), `linears_ms` our matrix products alone, and `bandwidth_limit_ms` the time
    to read weights and live K/V once at the measured read bandwidth; `without_grid` shows what the
    canonical grid of deterministic prefill attention costs.
    """
    engine = Engine.load(path, config=ModelConfig(self_test=False), block_size=block_size)
    blocks = CONTEXT // block_size + 1
    engine.bind_pool(None, max(BATCHES) * blocks)
    model = _transformers_model(path)
    token_ids = [int(t) for t in np.random.default_rng(0).integers(3, 200, CONTEXT)]
    read_gbps = _read_bandwidth()
    result: dict[str, Any] = {
        "model": path.name,
        "deterministic": engine.deterministic_report,
        "read_gb_per_s": round(read_gbps, 1),
        "rounds": rounds,
    }
    with torch.inference_mode():
        # Decode reads whatever K/V is there; its values do not matter for the time.
        engine.pool.tensor.normal_()
        result["prefill"] = _prefill(engine, model, token_ids, rounds)
        for batch in BATCHES:
            tables = [tuple(range(i * blocks, (i + 1) * blocks)) for i in range(batch)]
            figures = _decode(engine, model, token_ids, tables, rounds)
            nbytes = _weight_nbytes(engine)
            nbytes += batch * CONTEXT * engine.info.layout.bytes_per_token
            figures["bandwidth_limit_ms"] = round(nbytes / read_gbps / 1e6, 1)
            result[f"decode_{batch}"] = figures
    return result


def _prefill(engine: Engine, model: Any, token_ids: list[int], rounds: int) -> dict[str, float]:
    table = tuple(range(engine.pool.num_blocks))
    whole = [_item(token_ids, 0, CONTEXT, table)]
    halves = [_item(token_ids, s, s + CONTEXT // 2, table) for s in (0, CONTEXT // 2)]
    ids = torch.tensor([token_ids])
    forward = engine._built.forward

    def in_halves() -> None:
        for half in halves:
            _run(engine, [half])

    def without_grid() -> None:
        forward.attention.canonical = False
        _run(engine, whole)
        forward.attention.canonical = True

    def products() -> None:
        for linear in forward.linears[:-1]:
            linear.multiply(torch.empty(CONTEXT, linear.in_features))

    return _compare(
        {
            "ours": lambda: _run(engine, whole),
            "chunks_of_256": in_halves,
            "without_grid": without_grid,
            "transformers": lambda: model(input_ids=ids, logits_to_keep=1, use_cache=True),
            "linears": products,
        },
        rounds,
    )


def _decode(
    engine: Engine, model: Any, token_ids: list[int], tables: list[tuple[int, ...]], rounds: int
) -> dict[str, float]:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    batch = len(tables)
    layout = engine.info.layout
    state = torch.randn(batch, layout.num_kv_heads, CONTEXT, layout.head_dim)
    for layer in range(layout.num_layers):
        cache.update(state.clone(), state.clone(), layer)
    items = [
        _item([*token_ids, 5], CONTEXT, CONTEXT + 1, table, f"r{i}")
        for i, table in enumerate(tables)
    ]
    new = torch.full((batch, 1), 5)

    def theirs() -> None:
        output = model(input_ids=new, past_key_values=cache, use_cache=True)
        output.logits[:, -1].argmax(-1).tolist()
        cache.crop(-1)

    forward = engine._built.forward

    def products() -> None:
        for linear in forward.linears:
            linear.multiply(torch.ones(forward.pad(batch), linear.in_features))

    return _compare(
        {"ours": lambda: _run(engine, items), "transformers": theirs, "linears": products},
        rounds,
    )


def _compare(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            start = time.thread_time()
            run()
            if number:  # the first round warms caches
                times[name].append((time.thread_time() - start) * 1e3)
    figures = {f"{name}_ms": round(statistics.median(t), 1) for name, t in times.items()}
    ratios = [a / b for a, b in zip(times["ours"], times["transformers"], strict=True)]
    figures["ratio"] = round(statistics.median(ratios), 3)
    return figures


def _item(
    token_ids: list[int], start: int, end: int, table: tuple[int, ...], name: str = "r"
) -> WorkItem:
    return WorkItem(
        request_id=name, generation=0, token_ids=tuple(token_ids[start:end]), start=start,
        num_prompt_tokens=CONTEXT, block_table=table, sample=end >= CONTEXT, sampling=_GREEDY,
    )  # fmt: skip


def _run(engine: Engine, items: list[WorkItem]) -> None:
    result = engine.execute(Batch(batch_id=0, items=tuple(items)))
    assert not result.error, result.error


def _transformers_model(path: Path) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path), dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.eval()


def _read_bandwidth() -> float:
    """GB/s of one thread that sums memory."""
    values = np.ones(_READ_NBYTES // 4, np.float32)
    best = float("inf")
    for _ in range(6):
        start = time.thread_time()
        kernels.total(values, values.size)
        best = min(best, time.thread_time() - start)
    return _READ_NBYTES / best / 1e9


def _weight_nbytes(engine: Engine) -> int:
    return sum(
        linear.out_features * linear.in_features * linear.weight.element_size()
        for linear in engine._built.forward.linears
    )


def main(arguments: list[str]) -> int:
    """Measure the named model, by default smollm2, and print one JSON object."""
    from baton.engine.loader import resolve_model

    print(json.dumps(measure(resolve_model(arguments[0] if arguments else "smollm2")), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
