"""`baton race`, apart from the other verbs because of its many options."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from baton.cli_common import check_writable
from baton.config import load_config

_PIPE_COLUMNS = 140


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


Model = Annotated[str | None, _option("smollm2, tiny, folder, GGUF or hub id", "--model")]
Workloads = Annotated[list[str] | None, _option("long-prompt, short-prompt; default: both")]
Dataset = Annotated[Path | None, _option("a trace file instead")]
Divisor = Annotated[float, _option("divide the trace's lengths")]
Longest = Annotated[int, _option("leave out longer requests of the trace")]
Repetitions = Annotated[int, typer.Option(help="of every cell", min=1)]
Rates = Annotated[str, _option("requests/s, comma-separated; default: by capacity")]
Goodput = Annotated[str, _option("targets, 'ttft:500 tpot:100'; default: by scale")]
Profiles = Annotated[list[Path] | None, _option("service profile, repeatable: simulate, too")]
Streams = Annotated[bool, typer.Option("--streams/--no-streams", help="X1 and X2")]
Seed = Annotated[int, typer.Option(help="of lengths, arrivals and prompts", min=0)]
Json = Annotated[Path | None, _option("write the result", "--json")]
Config = Annotated[Path | None, _option("TOML configuration", "--config")]
Overrides = Annotated[list[str] | None, _option("section.key=value", "--set")]


def race(
    model: Model = None,
    workload: Workloads = None,
    dataset: Dataset = None,
    format: Annotated[str, _option("of the trace file")] = "auto",
    scale_lengths: Divisor = 1.0,
    max_model_len: Longest = 2048,
    repetitions: Repetitions = 3,
    duration: Annotated[float, _option("seconds of arrivals in a cell")] = 12.0,
    rates: Rates = "",
    goodput: Goodput = "",
    attainment: Annotated[float, _option("share that must meet the targets")] = 0.9,
    ttft_scale: Annotated[float, _option("TTFT target over the unloaded split")] = 6.0,
    tpot_scale: Annotated[float, _option("TPOT target over the unloaded split")] = 2.0,
    budget: Annotated[int, _option("token budget of the chunked arms")] = 64,
    safety_margin_ms: Annotated[float, _option("that the net margin must exceed")] = 0.0,
    profile: Profiles = None,
    streams: Streams = True,
    seed: Seed = 1,
    html: Annotated[Path | None, _option("write a report")] = None,
    json_out: Json = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 1 if an effect is not met")
    ] = False,
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Race colocated arms against the split on the same cores; say which serves more, and why."""
    from baton.bench.race import command
    from baton.bench.race.contest import parse_rates
    from baton.bench.race.plan import RacePlan

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
        profiles=tuple(map(str, profile or ())),
    )
    check_writable(html, "--html")
    check_writable(json_out)
    trace = command.trace_choice(dataset, format, scale_lengths, max_model_len)
    chosen = list(overrides or [])
    if model is not None:
        chosen.append(f"model.name={msgspec.json.encode(model).decode()}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_COLUMNS)  # the tables of a log are read on a wide screen
    code = command.race_command(
        load_config(config, chosen), plan, trace, console, html, json_out, strict=strict
    )
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("race")(race)
