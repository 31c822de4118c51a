"""What `baton vopr` prints: the plan, the outcome, the sums, and the story of a failing seed."""

import math
from collections import Counter

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from baton.errors import ConfigError
from baton.signals import interrupts
from baton.sim.campaign import Tally, campaign, useful_jobs
from baton.sim.draw import draw_plan
from baton.sim.plan import Plan, plan_lines
from baton.sim.shrink import shrink
from baton.sim.telling import Teller
from baton.sim.vopr import Outcome, run_plan

_MAX_STORY_LINES = 200


def replay(seed: int, console: Console, *, story: bool, shrinking: bool) -> int:
    """Run one seed and print its plan, its outcome and its trace hash; 1 if it fails."""
    plan = draw_plan(seed)
    _print(console, plan_lines(plan))
    teller = Teller()
    outcome = run_plan(plan, teller if story else None)
    _print(console, teller.lines)
    _print(
        console,
        [
            f"{outcome.num_events} events in {outcome.virtual_us / 1e6:.3f} s of virtual time; "
            f"{_who_ended(plan, outcome)}: {_counts(Counter(outcome.ends))}; "
            f"faults {_counts(Counter(outcome.faults))}",
            f"trace hash {outcome.trace_hash}",
        ],
    )
    if outcome.clean:
        _print(console, ["every invariant held"])
        return 0
    _explain(console, plan, outcome, shrinking=shrinking)
    return 1


def run_range(
    start: int,
    num_seeds: int | None,
    console: Console,
    *,
    seconds: float | None,
    jobs: int,
    shrinking: bool,
) -> tuple[int, Tally]:
    """Run a range of seeds and print the sums; 1 if one fails, with its shrunk story.

    SIGINT and SIGTERM end it early: what ran is summed up, and the exit code says so.
    """
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"--minutes is {seconds / 60:g}; use a positive number")
    useful_jobs(jobs, num_seeds)  # refused before anything is drawn
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        interrupts(lambda: _print(console, ["interrupted: ending the seeds that run"])) as asked,
        Progress(*columns, console=console, transient=True) as bar,
    ):
        task = bar.add_task("starting")

        def tell(tally: Tally) -> None:
            text = f"{tally.num_seeds} seeds, {tally.num_failing} failing"
            bar.update(task, description=text)

        tally = campaign(
            start,
            num_seeds,
            seconds=seconds,
            jobs=jobs,
            progress=tell,
            stopping=lambda: bool(asked),
        )
    console.print(_table(start, tally))
    for outcome in tally.failing:
        _print(console, [f"seed {outcome.seed}: {outcome.checker}: {outcome.text}"])
    if tally.failing:
        worst = tally.failing[0]
        _explain(console, draw_plan(worst.seed), worst, shrinking=shrinking and not asked)
    return (1 if tally.num_failing else asked.exit_code if asked else 0), tally


def _who_ended(plan: Plan, outcome: Outcome) -> str:
    """Requests of the plan, and the probes that come after them when all of them have ended."""
    num_requests = min(len(plan.arrivals), sum(outcome.ends.values()))
    num_probes = sum(outcome.ends.values()) - num_requests
    return f"{num_requests} requests and then {num_probes} probes ended"


def _explain(console: Console, plan: Plan, outcome: Outcome, *, shrinking: bool) -> None:
    small = shrink(plan, outcome) if shrinking else plan
    teller = Teller()
    again = run_plan(small, teller)
    lines = teller.lines
    _print(console, ["", f"broken: {outcome.checker}: {outcome.text}", "the smallest plan found:"])
    _print(console, plan_lines(small))
    if len(lines) > _MAX_STORY_LINES:
        _print(console, [f"  ... {len(lines) - _MAX_STORY_LINES} lines before"])
    _print(console, lines[-_MAX_STORY_LINES:])
    _print(console, [f"broken: {again.checker}: {again.text}"])
    _print(console, [f"replay with: baton vopr --seed {outcome.seed} --story"])


def _table(start: int, tally: Tally) -> Table:
    table = Table(show_header=False)
    seeds = f"{start} .. {start + tally.num_seeds - 1}" if tally.num_seeds else "none"
    rows = {
        "seeds": f"{seeds}: {tally.num_seeds} run, {tally.num_failing} failing",
        "requests": f"{tally.num_requests}, probes included: {_counts(tally.ends)}",
        "faults": f"{sum(tally.faults.values())}: {_counts(tally.faults)}",
        "seeds with": _counts(tally.marks),
        "events": f"{tally.num_events} in {tally.virtual_us / 1e6:.0f} s of virtual time",
        "speed": f"{tally.seeds_per_core_minute:.0f} seeds per minute and core; "
        f"{tally.elapsed_s:.1f} s in all, {tally.num_jobs} processes",
    }
    if tally.checkers:
        rows["broken"] = _counts(tally.checkers)
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.most_common()) or "none"


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
