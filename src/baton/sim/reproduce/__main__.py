"""`python -m baton.sim.reproduce`: every published result, or some of them; exit 1 if one fails."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from baton.errors import BatonError, ConfigError
from baton.sim.reproduce.break_even import break_even_checks
from baton.sim.reproduce.check import Check
from baton.sim.reproduce.data import Data, data_folder
from baton.sim.reproduce.reuse import curve_checks, reuse_checks
from baton.sim.reproduce.routes import link_checks, policy_checks, threshold_checks
from baton.sim.reproduce.sessions import session_checks

TARGETS: dict[str, Callable[[Data], list[Check]]] = {
    "reuse": reuse_checks,
    "r16": policy_checks,
    "r17": threshold_checks,
    "r18": curve_checks,
    "r21": lambda data: break_even_checks(),
    "r22": link_checks,
    "r25": lambda data: session_checks(),
}
WITHOUT_DATA = {"r21", "r25"}


def reproduce(
    only: Annotated[str, typer.Option(help=f"comma-separated of {', '.join(TARGETS)}")] = "",
    data: Annotated[Path | None, typer.Option(help="folder of data sets; BATON_DATA")] = None,
    num: Annotated[int | None, typer.Option(help="only the first requests of each trace")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the checks here")] = None,
) -> None:
    """Run published results again and say for each target whether it was met."""
    chosen = [word for word in only.split(",") if word] or list(TARGETS)
    for word in chosen:
        if word not in TARGETS:
            raise ConfigError(f"--only {word!r}: not known; use {', '.join(TARGETS)}")
    needs_data = any(word not in WITHOUT_DATA for word in chosen)
    folder = data_folder(data) if needs_data else Path()
    source, console = Data(folder=folder, num=num), Console(width=110)
    checks: list[Check] = []
    for word in chosen:
        begun_s = time.perf_counter()
        found = TARGETS[word](source)
        checks += found
        console.print(_table(found, f"{word}, {time.perf_counter() - begun_s:.0f} s"))
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(checks)) + b"\n")
    judged = [one for one in checks if one.is_judged]
    num_met = sum(one.met for one in judged)
    console.print(f"{num_met} of {len(judged)} targets met", highlight=False)
    raise typer.Exit(0 if num_met == len(judged) else 1)


def _table(checks: list[Check], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("what", "published", "measured", "accepted", ""):
        table.add_column(name, justify="left" if name in ("what", "") else "right")
    for one in checks:
        table.add_row(
            one.what, one.published, f"{one.measured:.4g} {one.unit}", one.accepted, one.verdict
        )
    return table


if __name__ == "__main__":
    try:
        typer.run(reproduce)
    except BatonError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        sys.exit(2)
