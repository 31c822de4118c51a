"""`baton trace`: where the time of requests went."""

from typing import Annotated

import typer

from baton.cli_common import console_for
from baton.errors import ConfigError

_COLUMNS = 120
_SOURCE = "folder of --trace-dir, one file, an OTLP export in JSON, or http://host:port"

Source = Annotated[str | None, typer.Argument(help=_SOURCE)]
Slowest = Annotated[int, typer.Option("--slowest", help="waterfalls of so many", min=0)]
OfRequest = Annotated[str, typer.Option("--request", help="the waterfall of this id")]
Compare = Annotated[
    tuple[str, str] | None, typer.Option("--compare", help="two traces side by side")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead")]


def trace(
    source: Source = None,
    slowest: Slowest = 0,
    request: OfRequest = "",
    compare: Compare = None,
    json: Json = False,
) -> None:
    """Say where requests spent their time and what bound them; exit 1 if a trace is broken."""
    from baton.telemetry.trace.command import compare_command, trace_command

    console = console_for(_COLUMNS)
    if compare is not None:
        if source or slowest or request:
            raise ConfigError(
                "--compare takes its two traces itself; leave all else but --json out"
            )
        raise typer.Exit(compare_command(*compare, console, as_json=json))
    if source is None:
        raise ConfigError(f"name a trace: {_SOURCE}")
    code = trace_command(source, console, slowest=slowest, request=request, as_json=json)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(trace)
