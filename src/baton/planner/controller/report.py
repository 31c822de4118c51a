"""The controller beside static plans, and every action with its reason."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from baton.planner.controller.run import Outcome

MAX_STEPS = 40


def print_outcomes(outcomes: Sequence[Outcome], console: Console) -> None:
    """For a person."""
    table = Table(
        "plan",
        "GPU-hours",
        "TTFT mean",
        "p50",
        "p90",
        "p99 ms",
        "TPOT p99 ms",
        "meet TTFT",
        "meet TPOT",
        "actions",
        box=None,
        pad_edge=False,
    )
    for one in outcomes:
        table.add_row(
            one.name,
            f"{one.gpu_hours:.2f}",
            *(
                f"{value:.0f}"
                for value in (one.ttft_mean_ms, one.ttft_p50_ms, one.ttft_p90_ms, one.ttft_p99_ms)
            ),
            f"{one.tpot_p99_ms:.2f}",
            f"{one.ttft_met:.1%}",
            f"{one.tpot_met:.1%}",
            f"{len(one.steps)}",
        )
    console.print(table)
    for one in outcomes:
        _print_steps(one, console)


def _print_steps(outcome: Outcome, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for step in outcome.steps[:MAX_STEPS]:
        counts = f"{step.num_prefill}P+{step.num_decode}D"
        say(f"{step.at_s:7.0f} s  {counts:8} {step.kind} {step.role}: {step.reason}")
    if len(outcome.steps) > MAX_STEPS:
        say(f"and {len(outcome.steps) - MAX_STEPS} more")
    for note in outcome.notes[:MAX_STEPS]:
        say(f"not done: {note}")
