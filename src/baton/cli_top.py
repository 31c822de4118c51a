"""`baton top`: a running Baton in a terminal."""

from typing import Annotated

import typer

from baton.cli_common import console_for

_COLUMNS = 120

Url = Annotated[str, typer.Argument(help="where `baton serve` listens")]
Once = Annotated[bool, typer.Option("--once", help="print one frame, as for a pipe")]
Interval = Annotated[
    float, typer.Option("--interval", help="seconds between looks", min=0.1, max=60.0)
]
Requests = Annotated[
    int, typer.Option("--requests", help="with --once: the last so many", min=0, max=40)
]


def top(
    url: Url = "http://127.0.0.1:8000",
    once: Once = False,
    interval: Interval = 1.0,
    requests: Requests = 10,
) -> None:
    """Show workers, K/V flows, both clocks and the last requests, as /dashboard does."""
    from baton.telemetry.top.command import top_once, top_screen

    console = console_for(_COLUMNS)
    if once:
        top_once(url, console, requests)
    else:
        top_screen(url, console, interval)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(top)
