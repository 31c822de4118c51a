"""`baton race`, apart from the other verbs because of its many options."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from baton.config import load_config


def race(
    model: Annotated[
        str | None, typer.Option("--model", help="smollm2, tiny, folder, GGUF or hub id")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="long-prompt, short-prompt; default: both")
    ] = None,
    dataset: Annotated[Path | None, typer.Option(help="a trace file instead")] = None,
    format: Annotated[str, typer.Option(help="of the trace file")] = "auto",
    scale_lengths: Annotated[float, typer.Option(help="divide the trace's lengths")] = 1.0,
    max_model_len: Annotated[int, typer.Option(help="leave out longer requests")] = 2048,
    repetitions: Annotated[int, typer.Option(help="of every cell", min=1)] = 3,
    duration: Annotated[float, typer.Option(help="seconds of arrivals in a cell")] = 10.0,
    rates: Annotated[
        str, typer.Option(help="requests/s, comma-separated; default: by capacity")
    ] = "",
    goodput: Annotated[
        str, typer.Option(help="targets, ttft:500 tpot:100; default: by scale")
    ] = "",
    attainment: Annotated[float, typer.Option(help="share that must meet the targets")] = 0.9,
    ttft_scale: Annotated[float, typer.Option(help="TTFT target over the unloaded split")] = 6.0,
    tpot_scale: Annotated[float, typer.Option(help="TPOT target over the unloaded split")] = 1.5,
    budget: Annotated[int, typer.Option(help="token budget of the chunked arms")] = 64,
    safety_margin_ms: Annotated[float, typer.Option(help="that the net margin must exceed")] = 0.0,
    profile: Annotated[
        list[Path] | None, typer.Option(help="service profile, repeatable: simulate cells, too")
    ] = None,
    streams: Annotated[bool, typer.Option("--streams/--no-streams", help="X1 and X2")] = True,
    seed: Annotated[int, typer.Option(help="of lengths, arrivals and prompts", min=0)] = 1,
    html: Annotated[Path | None, typer.Option(help="write a report")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the result")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 1 if an effect is not met")
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", help="TOML configuration")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="section.key=value")] = None,
) -> None:
    """Race colocated arms against the split on the same cores; say which serves more, and why."""
    from baton.bench.race.command import TraceChoice, race_command
    from baton.bench.race.contest import parse_rates
    from baton.bench.race.plan import RacePlan
    from baton.cli import check_writable

    chosen = list(overrides or [])
    if model is not None:
        chosen.append(f"model.name={msgspec.json.encode(model).decode()}")
    loaded = load_config(config, chosen)
    for flag, path in (("--json", json_out), ("--html", html)):
        check_writable(path, flag)
    plan = RacePlan(
        repetitions=repetitions,
        duration_s=duration,
        seed=seed,
        attainment=attainment,
        ttft_scale=ttft_scale,
        tpot_scale=tpot_scale,
        goodput=goodput,
        rates=parse_rates(rates),
        budget=budget,
        with_streams=streams,
        contests=tuple(workload or RacePlan().contests),
        safety_margin_ms=safety_margin_ms,
        profiles=tuple(str(path) for path in profile or ()),
    )
    trace = None
    if dataset is not None:
        trace = TraceChoice(
            path=dataset, format=format, scale=scale_lengths, max_model_len=max_model_len
        )
    console = Console()
    code = race_command(loaded, plan, trace, console, html=html, json_out=json_out, strict=strict)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("race")(race)
