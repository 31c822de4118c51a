"""`python -m baton.planner.reproduce`: every published result, or some; resumable with --state.

Exit status 1: a target was missed and no row says why, or a reproduction failed; the others are
run all the same. A miss that is explained is a finding.
"""

import sys
import time
import traceback
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from baton.errors import BatonError, ConfigError
from baton.planner.reproduce.context import SEEDS, Context, Reproduction
from baton.planner.reproduce.markdown import write_markdown
from baton.planner.reproduce.registry import choose
from baton.planner.reproduce.row import Row, error_row
from baton.planner.reproduce.state import Done, State, digest, load_state, save_state
from baton.sim.reproduce.data import data_folder

Found = list[tuple[Reproduction, tuple[Row, ...]]]


def reproduce(
    only: Annotated[str, typer.Option(help="comma-separated, such as r1,r16; default all")] = "",
    data: Annotated[Path | None, typer.Option(help="folder of data sets; BATON_DATA")] = None,
    state: Annotated[Path | None, typer.Option(help="remember finished ones in this file")] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated, at least 3")] = ",".join(
        map(str, SEEDS)
    ),
    num: Annotated[int | None, typer.Option(help="only the first requests of each trace")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the rows here")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the table into this file")] = None,
) -> None:
    """Run published results again and say for each target whether it was met, or why not."""
    chosen, console = choose(only), Console(width=150)
    folder = data_folder(data) if any(one.files for one in chosen) else Path()
    found = _run_all(chosen, read_context(folder, seeds, num), load_state(state), state, console)
    rows = [row for _, some in found for row in some]
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    if markdown is not None:
        write_markdown(markdown, found)
    judged = [row for row in rows if row.met is not None]
    num_met = sum(bool(row.met) for row in judged)
    unexplained = [row for row in judged if not row.met and not row.why]
    console.print(
        f"{num_met} of {len(judged)} targets met, {len(judged) - num_met - len(unexplained)} "
        f"missed with a reason, {len(unexplained)} without",
        highlight=False,
    )
    raise typer.Exit(1 if unexplained else 0)


def read_context(folder: Path, seeds: str, num: int | None) -> Context:
    """From the flags."""
    try:
        numbers = tuple(int(word) for word in seeds.split(","))
    except ValueError:
        raise ConfigError(f"--seeds {seeds!r}: write numbers, such as 0,1,2") from None
    return Context(folder=folder, seeds=numbers, num=num)


def _run_all(
    chosen: list[Reproduction],
    context: Context,
    state: State,
    state_path: Path | None,
    console: Console,
) -> Found:
    found: Found = []
    with _bar(console) as bar:
        task = bar.add_task("", total=len(chosen))
        for one in chosen:
            told = msgspec.structs.replace(
                context,
                say=lambda text, one=one: bar.update(
                    task, description=f"{one.target_id} {text}"[:60]
                ),
            )
            bar.update(task, description=f"{one.target_id} {one.title}"[:60])
            begun_s = time.perf_counter()
            try:
                done = state.finished(one, context)
                note = "as before" if done is not None else ""
                if done is None:
                    done = _run(one, context, told)
                    state.done[one.target_id] = done
                    save_state(state_path, state)
            except Exception as error:  # the others still run; the exit status tells
                traceback.print_exc()
                seconds = time.perf_counter() - begun_s
                done = Done(digest="", seconds=seconds, rows=(error_row(one.target_id, error),))
                note = "ERROR"
            found.append((one, done.rows))
            bar.console.print(_table(one, done, note))
            bar.advance(task)
    return found


def _run(one: Reproduction, context: Context, told: Context) -> Done:
    begun_s = time.perf_counter()
    rows = tuple(one.run(told))
    return Done(digest=digest(one, context), seconds=time.perf_counter() - begun_s, rows=rows)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:60}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _table(one: Reproduction, done: Done, note: str) -> Table:
    title = f"{one.target_id} {one.title} ({one.source}); {done.seconds:.0f} s {note}".rstrip()
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("what", "published", "accepted", "ours", "interval", "", "why"):
        table.add_column(name, justify="right" if name == "ours" else "left", overflow="fold")
    for row in done.rows:
        table.add_row(
            row.what,
            row.target,
            row.tolerance,
            row.measured,
            row.interval,
            row.verdict,
            row.why,
        )
    return table


if __name__ == "__main__":
    try:
        typer.run(reproduce)
    except BatonError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        sys.exit(2)
