"""`baton simulate` behind its flags."""

import time
from pathlib import Path

import msgspec
from rich.console import Console

from baton.sim.replay.costs import Costs
from baton.sim.simulate.plan import Plan
from baton.sim.simulate.printed import print_report
from baton.sim.simulate.run import simulate
from baton.sim.simulate.trace import load


def simulate_command(plan: Plan, costs: Costs, console: Console, json_out: Path | None) -> int:
    """Run, print, and write the report; the file holds nothing of this machine's own time."""
    begun_s = time.perf_counter()
    report = simulate(plan, costs, load(plan.trace))
    print_report(report, console, time.perf_counter() - begun_s)
    if json_out is not None:
        text = msgspec.json.encode(report)
        json_out.write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    return 0
