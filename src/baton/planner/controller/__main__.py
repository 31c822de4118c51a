"""`python -m baton.planner.controller`: a trace through the controller and through static plans.

Workers are those of Dynamo's own replay, so that its planner's figures can stand beside these.
"""

import math
import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from baton.errors import BatonError, ConfigError
from baton.planner.controller.report import print_outcomes
from baton.planner.controller.run import run_controlled, run_static
from baton.planner.controller.scene import dynamo_scene
from baton.planner.plan.question import time_ms
from baton.policy.replan_signals import ReplanRules
from baton.sim.fast.workload import pack
from baton.workload.load import load_trace

_COUNTS = re.compile(r"(\d+)P\+?(\d+)D", re.IGNORECASE)
US_PER_MS, US_PER_S = 1e3, 1e6
PUBLISHED = (
    "Dynamo 1.4.2's load planner on the Mooncake conversation trace, 2P+2D start, 30 s start-up, "
    "16 GPUs: 5.11 GPU-hours at TTFT p99 13.2 s; its static 4P+4D: 7.87 GPU-hours at 2.5 s"
)


def controller(
    trace: Annotated[Path, typer.Option(help="requests with arrivals")],
    ttft: Annotated[str, typer.Option(help="target: 4s, 4000")] = "4s",
    tpot: Annotated[str, typer.Option(help="target: 10ms, 10")] = "10",
    attainment: Annotated[float, typer.Option(help="share that must meet each")] = 0.9,
    start: Annotated[str, typer.Option(help="workers at the start")] = "2P+2D",
    static: Annotated[str, typer.Option(help="plans beside it")] = "4P+4D,2P+2D,3P+1D",
    gpus: Annotated[int, typer.Option(help="budget")] = 16,
    start_up: Annotated[str, typer.Option(help="until a new worker serves")] = "30s",
    flip: Annotated[str, typer.Option(help="until a drained worker serves the other phase")] = "5s",
    interval: Annotated[str, typer.Option(help="between decisions")] = "5s",
    speed: Annotated[float, typer.Option(help="arrivals come so many times faster")] = 1.0,
    tick: Annotated[int, typer.Option(help="spread equal arrivals over so many ms")] = 0,
    num: Annotated[int | None, typer.Option(help="only the first requests")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the outcomes")] = None,
) -> None:
    """GPU-hours and tails of a trace, with the counts of workers as the load has it."""
    if not (math.isfinite(speed) and speed > 0):
        raise ConfigError(f"--speed {speed:g}: a number above 0")
    rules = ReplanRules(
        ttft_us=time_ms("--ttft", ttft) * US_PER_MS,
        tpot_us=time_ms("--tpot", tpot) * US_PER_MS,
        attainment=attainment,
        max_gpus=gpus,
        start_us=time_ms("--start-up", start_up) * US_PER_MS,
        flip_us=time_ms("--flip", flip) * US_PER_MS,
    )
    workload = pack(load_trace(trace, limit=num, tick_us=tick * 1000 or None)).at_rate(speed)
    if not workload.arrival_us[-1] > 0:
        raise ConfigError(f"--trace {trace}: all requests come at once; there is no load to follow")
    scene, console = dynamo_scene(), Console(width=150)
    first = _counts("--start", start)
    if sum(first) > gpus:
        raise ConfigError(f"--start {start!r}: more than the budget of {gpus} GPUs")
    plans = [_counts("--static", word) for word in static.split(",") if word]
    outcomes = [run_static(scene, workload, rules, *counts) for counts in plans]
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("controller", total=1.0)
        outcomes.append(
            run_controlled(
                scene,
                workload,
                rules,
                num_prefill=first[0],
                num_decode=first[1],
                interval_us=time_ms("--interval", interval) * US_PER_MS,
                say=lambda share: bar.update(task, completed=share),
            )
        )
    console.print(f"steps: {scene.prefill.curves.source}", highlight=False)
    print_outcomes(outcomes, console)
    console.print(f"beside it: {PUBLISHED}", highlight=False)
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)) + b"\n")


def _counts(flag: str, text: str) -> tuple[int, int]:
    found = _COUNTS.fullmatch(text.strip())
    if not found or min(int(found[1]), int(found[2])) < 1:
        raise ConfigError(f"{flag} {text!r}: prefill and decode workers, such as 2P+2D")
    return int(found[1]), int(found[2])


if __name__ == "__main__":
    try:
        typer.run(controller)
    except BatonError as error:
        print(f"controller: {error}", file=sys.stderr)
        sys.exit(2)
