"""`baton cache`: what lives where in the K/V pool of a running Baton."""

import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console

_PIPE_COLUMNS = 140

Url = Annotated[str, typer.Option("--url", help="where `baton serve` listens")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]
Clear = Annotated[
    bool, typer.Option("--clear", help="void all history; needs gateway.allow_cache_clear")
]


def cache(url: Url = "http://127.0.0.1:8000", json: Json = False, clear: Clear = False) -> None:
    """Show what lives where in the K/V pool: tiers, hits, hottest prefixes, copies under way."""
    from baton.telemetry.cache_client import clear_cache, fetch_cache
    from baton.telemetry.cache_table import cache_tables

    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    if clear:
        generation = clear_cache(url)
        if json:
            typer.echo(msgspec.json.encode({"generation": generation}))
        else:
            console.print(f"cleared: the cache's generation is {generation} now", highlight=False)
        return
    view = fetch_cache(url)
    if json:
        typer.echo(msgspec.json.encode(view))
        return
    for part in cache_tables(view):
        console.print(part, highlight=False)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(cache)
