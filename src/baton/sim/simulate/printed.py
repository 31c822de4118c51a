"""What `baton simulate` prints."""

from rich.console import Console
from rich.table import Table

from baton.sim.simulate.report import Report

_PERCENTS = ("mean", "p50", "p90", "p99")


def print_report(figures: Report, console: Console, wall_s: float) -> None:
    """Tables for a person; the last line is the only one that depends on this machine."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"trace      {figures.workload}")
    for note in figures.notes:
        say(f"           {note}")
    say(f"hardware   {figures.hardware}")
    say(f"routes     {figures.policy}; configuration {figures.config_digest}")
    refused = "".join(f"; {num} {code}" for code, num in figures.failures.items())
    say(f"requests   {figures.num_completed} of {figures.num_requests} done{refused}")
    for warning in figures.warnings:
        say(f"WARNING    {warning}")
    num_too_large = figures.failures.get("too_large", 0)
    if num_too_large:
        say(
            f"WARNING    {num_too_large} of {figures.num_requests} requests could not be held "
            f"(longer than a worker's K/V memory or --max-model-len); all figures are of the other "
            f"{figures.num_requests - num_too_large}: give more --cache-tokens or --blocks"
        )
    console.print(_latencies(figures))
    if figures.attainment is not None:
        attainment = figures.attainment
        met = ", ".join(f"{name} {one.value:.3f}" for name, one in attainment.phases.items())
        say(f"attainment joint {attainment.joint.value:.3f} ({met}): {attainment.describe()}")
    reuse = figures.reuse
    say(
        f"reuse      {reuse.token_ratio:.4f} of {reuse.num_prompt_tokens} prompt rows, "
        f"{reuse.block_ratio:.4f} of {reuse.num_prompt_blocks} blocks"
    )
    moved = ", ".join(
        f"{nbytes / 1e9:.3f} GB by {what}" for what, nbytes in figures.moved_nbytes.items()
    )
    say(f"moved      {moved or 'nothing'}")
    routes = ", ".join(f"{num} {reason}" for reason, num in figures.decisions.items())
    say(f"decisions  {routes or 'none'}")
    console.print(_workers(figures))
    say(
        f"simulated  {figures.virtual_s:.1f} s in {wall_s:.1f} s: {figures.num_events} events, "
        f"{figures.num_events / max(wall_s, 1e-9):.0f}/s"
    )


def _latencies(figures: Report) -> Table:
    table = Table("ms", *_PERCENTS, box=None, pad_edge=False)
    for name in ("ttft", "tpot"):
        values = [figures.latency[f"{percent}_{name}_ms"] for percent in _PERCENTS]
        table.add_row(name.upper(), *("-" if one is None else f"{one:.2f}" for one in values))
    return table


def _workers(figures: Report) -> Table:
    table = Table("worker", "blocks", "steps", "busy", box=None, pad_edge=False)
    for worker in figures.workers:
        table.add_row(
            worker.worker_id, f"{worker.num_blocks}", f"{worker.num_steps}", f"{worker.busy:.3f}"
        )
    return table
