"""`baton simulate` behind its flags."""

import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from baton.output_file import write_file
from baton.sim.replay.costs import Costs
from baton.sim.simulate.plan import Plan
from baton.sim.simulate.printed import print_report
from baton.sim.simulate.run import Simulated, simulate_each
from baton.sim.simulate.table import check_table, write_table
from baton.sim.simulate.trace import load
from baton.workload.request import Workload


def simulate_command(
    plan: Plan,
    costs: Costs,
    console: Console,
    json_out: Path | None,
    table_out: Path | None = None,
) -> int:
    """Run, print, and write report and table; files hold nothing of this machine's own time."""
    if table_out is not None:
        check_table(table_out)
    workload = load(plan.trace)
    begun_s = time.perf_counter()
    simulated = _with_progress(plan, costs, workload)
    print_report(simulated.report, console, time.perf_counter() - begun_s)
    if json_out is not None:
        text = msgspec.json.encode(simulated.report)
        write_file(json_out, msgspec.json.format(text, indent=1) + b"\n")
    if table_out is not None:
        write_table(table_out, simulated.columns())
    return 0


def _with_progress(plan: Plan, costs: Costs, workload: Workload) -> Simulated:
    """On the terminal of errors, so that what is printed can go into a file."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("requests", total=len(workload.requests))
        return simulate_each(
            plan, costs, workload, on_done=lambda num: bar.update(task, completed=num)
        )
