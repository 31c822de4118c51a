"""`baton profile`, apart from the other verbs because of its many options."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from baton.config import load_config


def profile(
    model: Annotated[
        str | None, typer.Option("--model", help="smollm2, tiny, folder, GGUF or hub id")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the profile; ./baton-profile-MODEL.json")
    ] = None,
    seed: Annotated[int, typer.Option(help="of held-out points and order", min=0)] = 1,
    threads: Annotated[int | None, typer.Option(help="threads of one engine")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a coarser grid, about 2 minutes")] = False,
    tbt_ms: Annotated[
        list[float] | None,
        typer.Option("--tbt-ms", help="print the token budget of this TBT target"),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML configuration")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="section.key=value")] = None,
) -> None:
    """Measure what steps cost here and fit a service profile; exit 1 if it predicts badly."""
    from baton.bench.profile.command import ProfileOptions, profile_command

    chosen = list(overrides or [])
    if model is not None:
        chosen.append(f"model.name={msgspec.json.encode(model).decode()}")
    if threads is not None:
        chosen.append(f"worker.threads={threads}")
    loaded = load_config(config, chosen)
    options = ProfileOptions(
        config=loaded,
        out=out,
        seed=seed,
        quick=quick,
        tbt_ms=tuple(tbt_ms or ()),
    )
    raise typer.Exit(profile_command(options, Console()))


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("profile")(profile)
