"""`python -m baton.bench.threads`: the engine on one core beside itself on several, alternated.

Prints medians and the median of the rounds' ratios; above 1 the threads pay. See
docs/benchmarks.md for what a busy neighbour does to them.
"""

import argparse
import asyncio
import os
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from baton.bench.bare_engine import start_bare
from baton.bench.steps import Case
from baton.config import load_config
from baton.engine.loader import resolve_model
from baton.runtime.cores import share_cores

CASES = tuple(Case(batch=0, context=context) for context in (128, 512, 2048)) + tuple(
    Case(batch=batch, context=512) for batch in (1, 4, 16)
)


async def compare_threads(
    model: str, threads: int, rounds: int, cases: Sequence[Case] = CASES
) -> dict[Case, list[tuple[float, float]]]:
    """Milliseconds on one thread and on `threads`, by case and round. Raises ConfigError."""
    path = resolve_model(model)
    engines = []
    times: dict[Case, list[tuple[float, float]]] = {case: [] for case in cases}
    try:
        for count in (1, threads):
            config = load_config(None, [f'model.name="{model}"', f"worker.threads={count}"])
            engines.append(await start_bare(config, path, share_cores(1, count)[0]))
        one, several = engines
        for number in range(rounds + 1):
            for case in cases:
                pair = (await one.ask(case), await several.ask(case))
                if number:  # the first round warms both up
                    times[case].append(pair)
    finally:
        for engine in engines:
            await engine.close()
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    times = asyncio.run(compare_threads(options.model, options.threads, options.rounds))
    table = Table(
        title=f"{options.model}, fp32; decode at context 512; load before: {load:.1f}",
        title_justify="left",
    )
    for column in ("step", "1 thread ms", f"{options.threads} threads ms", "speed-up"):
        table.add_column(column, justify="right")
    for case, pairs in times.items():
        name = case.name if case.batch else f"prefill {case.context}"
        one, several = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        table.add_row(name, f"{one:.1f}", f"{several:.1f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
