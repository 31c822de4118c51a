"""The command line: verbs only, each a thin call into a package."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from baton import (
    __version__,
    cli_bench,
    cli_cache,
    cli_drain,
    cli_hardware,
    cli_manifest,
    cli_plan,
    cli_predict,
    cli_profile,
    cli_provision,
    cli_race,
    cli_simulate,
    cli_top,
    cli_trace,
)
from baton.cli_common import check_writable, loop_factory
from baton.cli_vllm import (
    ConnectorOption,
    DecodeTpOption,
    DecodeUrlOption,
    EngineOption,
    MixedUrlOption,
    PrefillTpOption,
    PrefillUrlOption,
    compare_engines,
    vllm_overrides,
)
from baton.config import BatonConfig, load_config
from baton.core.knobs import knobs_of
from baton.errors import BatonError, ConfigError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
_console = Console()
_errors = Console(stderr=True, emoji=False)
_EXTRA_OF = {
    "aiohttp": "bench,vllm",
    "plotly": "bench",
    "pyarrow": "plan",
    "yaml": "plan",
    "opentelemetry": "otel",
    "kubernetes_validate": "plan",
}
"""Which extra installs what is missing; all else is of `serve`."""

ModelOption = Annotated[
    str | None, typer.Option("--model", help="smollm2, tiny, folder, GGUF or hub id")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML configuration")]
PlaneOption = Annotated[
    str | None, typer.Option("--data-plane", help="what moves K/V: shm, nixl or auto")
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", help="where workers run: local, ray, ray://auto, ray://HEAD:PORT"),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="section.key=value")]


def _load(
    config: Path | None,
    overrides: list[str] | None,
    model: str | None = None,
    prefill: int | None = None,
    decode: int | None = None,
    mixed: int | None = None,
    host: str | None = None,
    port: int | None = None,
    data_plane: str | None = None,
) -> BatonConfig:
    """Flags win over --set, which wins over the file."""
    chosen = list(overrides or [])
    if mixed is not None and (prefill is not None or decode is not None):
        raise ConfigError("--mixed cannot be combined with --prefill or --decode")
    if mixed is not None:
        prefill, decode = 0, 0
    elif prefill is not None or decode is not None:
        mixed = 0
    flags = {
        "cluster.prefill": prefill,
        "cluster.decode": decode,
        "cluster.mixed": mixed,
        "gateway.port": port,
    }
    chosen += [f"{key}={value}" for key, value in flags.items() if value is not None]
    if model is not None:
        chosen.append(f"model.name={_quoted(model)}")
    if host is not None:
        chosen.append(f"gateway.host={_quoted(host)}")
    if data_plane is not None:
        chosen.append(f"transfer.data_plane={_quoted(data_plane)}")
    return load_config(config, chosen)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


@app.command()
def serve(
    model: ModelOption = None,
    prefill: Annotated[int | None, typer.Option(help="prefill workers")] = None,
    decode: Annotated[int | None, typer.Option(help="decode workers")] = None,
    mixed: Annotated[int | None, typer.Option(help="colocated workers instead")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port; 0 takes a free one")] = None,
    data_plane: PlaneOption = None,
    engine: EngineOption = None,
    connector: ConnectorOption = None,
    prefill_url: PrefillUrlOption = None,
    decode_url: DecodeUrlOption = None,
    mixed_url: MixedUrlOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    trace_dir: Annotated[Path | None, typer.Option(help="write trace events here")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="start only what this file of `baton manifest` says")
    ] = None,
) -> None:
    """Serve a model over the OpenAI API with prefill and decode on different workers."""
    from baton.runtime.deployment_record import load_manifest, load_vllm_manifest

    chosen = vllm_overrides(overrides, engine, connector, prefill_url, decode_url, mixed_url)
    if cluster is not None:
        chosen = [*(chosen or []), f"cluster.launcher={_quoted(cluster)}"]
    loaded = _load(config, chosen, model, prefill, decode, mixed, host, port, data_plane=data_plane)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if loaded.cluster.engine == "vllm":
            from baton.runtime.vllm.serve import serve_vllm

            promised = load_vllm_manifest(manifest) if manifest is not None else None
            runner.run(serve_vllm(loaded, _console, trace_dir, promised))
            return
        from baton.runtime.serve import serve as run

        expected = load_manifest(manifest) if manifest is not None else None
        runner.run(run(loaded, _console, trace_dir, expected))


@app.command()
def compare(
    model: ModelOption = None,
    prompts: Annotated[Path | None, typer.Option(help=".txt or .jsonl to replay instead")] = None,
    every_arm: Annotated[bool, typer.Option("--all", help="every way to transfer")] = False,
    cases: Annotated[list[str] | None, typer.Option("--case", help="only this case")] = None,
    milestones: Annotated[
        bool, typer.Option("--milestones", help="once with each cache.milestone, on both sides")
    ] = False,
    list_cases: Annotated[bool, typer.Option("--list", help="name the cases and stop")] = False,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the result here")] = None,
    data_plane: PlaneOption = None,
    engine: EngineOption = None,
    connector: ConnectorOption = None,
    prefill_url: PrefillUrlOption = None,
    decode_url: DecodeUrlOption = None,
    mixed_url: MixedUrlOption = None,
    prefill_tp: PrefillTpOption = None,
    decode_tp: DecodeTpOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Prove that disaggregated answers equal colocated ones, bit for bit; exit 1 if not."""
    from baton.bench.compare import command

    urls = (prefill_url, decode_url, mixed_url)
    chosen = vllm_overrides(overrides, engine, connector, *urls, prefill_tp, decode_tp)
    loaded = _load(config, chosen, model, data_plane=data_plane)
    if loaded.cluster.engine == "vllm":
        raise typer.Exit(compare_engines(loaded, cases or [], _console, json_out))
    if list_cases:
        command.print_cases(loaded, _console)
        return
    plan = command.make_plan(loaded, prompts, cases or [], every_arm)
    run = command.compare_milestones if milestones else command.compare_command
    raise typer.Exit(run(plan, _console, json_out))


@app.command()
def vopr(
    seed: Annotated[int | None, typer.Option(help="replay this seed", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="how many seeds to run", min=1)] = None,
    start: Annotated[int | None, typer.Option(help="first of the range; 0", min=0)] = None,
    minutes: Annotated[float | None, typer.Option(help="run seeds for so long")] = None,
    jobs: Annotated[int | None, typer.Option(help="processes; 0 or none: every core")] = None,
    story: Annotated[bool, typer.Option("--story", help="print what happens in it")] = False,
    shrinking: Annotated[bool, typer.Option("--shrink/--no-shrink")] = True,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the sums here")] = None,
) -> None:
    """Serve simulated requests under random faults; exit 1 if an invariant breaks."""
    from baton.sim import report

    if seed is not None:
        ranged = {
            "--seeds": seeds,
            "--start": start,
            "--minutes": minutes,
            "--jobs": jobs,
            "--json": json_out,
        }
        if given := [flag for flag, value in ranged.items() if value is not None]:
            raise ConfigError(f"--seed replays one seed; leave {' and '.join(given)} out")
        raise typer.Exit(report.replay(seed, _console, story=story, shrinking=shrinking))
    if story:
        raise ConfigError("--story prints the events of one seed; name it with --seed")
    count = seeds if seeds is not None or minutes is not None else 1000
    seconds = None if minutes is None else 60 * minutes
    check_writable(json_out)
    code, tally = report.run_range(
        start or 0, count, _console, seconds=seconds, jobs=jobs or 0, shrinking=shrinking
    )
    if json_out is not None:
        json_out.write_bytes(msgspec.json.encode(tally))
    raise typer.Exit(code)


@app.command()
def explore(
    requests: Annotated[int, typer.Option(help="requests, all submitted at once")] = 2,
    chunks: Annotated[int, typer.Option(help="chunks per transfer")] = 2,
    crashes: Annotated[int, typer.Option(help="worker crashes in one run")] = 1,
    duplicates: Annotated[int, typer.Option(help="repeated messages in one run")] = 1,
    drops: Annotated[int, typer.Option(help="lost messages in one run")] = 1,
    retries: Annotated[int, typer.Option(help="early deadlines in one run")] = 1,
    cancels: Annotated[int, typer.Option(help="clients that leave in one run")] = 1,
    give_ups: Annotated[int, typer.Option(help="workers lost, and alive, in one run")] = 0,
    faults: Annotated[int, typer.Option(help="all of these together in one run")] = 1,
    direction: Annotated[str, typer.Option(help="push, pull or both")] = "both",
    max_states: Annotated[int, typer.Option(help="stop after so many states")] = 20_000_000,
    minutes: Annotated[float, typer.Option(help="stop after so long, per direction")] = 20.0,
    self_check: Annotated[int, typer.Option(help="run every n-th known step again; 0: none")] = 0,
) -> None:
    """Explore every interleaving of a small deployment; exit 1 with the shortest way to a fault."""
    from baton.sim.explore import command
    from baton.sim.explore.setup import Setup

    setups = [
        Setup(
            num_requests=requests,
            num_chunks=chunks,
            num_crashes=crashes,
            num_duplicates=duplicates,
            num_drops=drops,
            num_retries=retries,
            num_cancels=cancels,
            num_give_ups=give_ups,
            num_faults=faults,
            direction=chosen,
        )
        for chosen in command.directions_of(direction)
    ]
    status = command.explore_command(
        setups, _console, max_states=max_states, minutes=minutes, check_every=self_check
    )
    raise typer.Exit(status)


@app.command()
def chaos(
    model: ModelOption = "tiny",
    minutes: Annotated[
        float | None,
        typer.Option(help="how long faults are injected; 3, and with vLLM each kind once"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of prompts, load and schedule")] = 1,
    only: Annotated[list[str] | None, typer.Option("--only", help="only this kind")] = None,
    pairs: Annotated[int, typer.Option(help="workers of each role")] = 2,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the result here")] = None,
    data_plane: PlaneOption = None,
    engine: EngineOption = None,
    connector: ConnectorOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Inject faults into a real deployment under load and judge every answer; exit 1 if wrong."""
    from baton.bench.chaos.command import chaos_command

    chosen = vllm_overrides(overrides, engine, connector)
    loaded = _load(config, chosen, model, data_plane=data_plane)
    check_writable(json_out)
    if loaded.cluster.engine == "vllm":
        from baton.bench.vllm.chaos import chaos_vllm

        raise typer.Exit(
            chaos_vllm(
                loaded, _console, minutes=minutes, seed=seed, only=only or [], json_out=json_out
            )
        )
    code = chaos_command(
        loaded,
        _console,
        minutes=3.0 if minutes is None else minutes,
        seed=seed,
        only=only or [],
        pairs=pairs,
        json_out=json_out,
    )
    raise typer.Exit(code)


@app.command("config")
def show_config(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Print every knob with its value, the words it permits, and the configuration's digest."""
    loaded = load_config(config, overrides)
    printed = ""
    for section, name, value, choices in knobs_of(loaded):
        if section != printed:
            _console.print(f"[{section}]", markup=False, highlight=False)
            printed = section
        line = f"{name} = {msgspec.json.encode(value).decode()}"
        line += f"  # {', '.join(choices)}" if choices else ""
        _console.print(line, markup=False, highlight=False, soft_wrap=True)
    _console.print(f"# digest {loaded.digest}", highlight=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        _console.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Serve language models with prefill and decode on different workers."""
    del version


@app.command()
def version() -> None:
    """Print the version."""
    _console.print(__version__)


cli_bench.register(app)
cli_cache.register(app)
cli_drain.register(app)
cli_manifest.register(app)
cli_hardware.register(app)
cli_plan.register(app)
cli_predict.register(app)
cli_profile.register(app)
cli_provision.register(app)
cli_race.register(app)
cli_simulate.register(app)
cli_top.register(app)
cli_trace.register(app)


def main() -> None:
    """Entry point: deliberate errors become one clear line and exit code 2."""
    try:
        app()
    except BatonError as error:
        _errors.print(f"baton: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "baton":
            raise
        extra = _EXTRA_OF.get((error.name or "").split(".")[0], "serve")
        text = f"baton: {error.name} is not installed; install kvbaton[{extra}]"
        _errors.print(text, markup=False)
        sys.exit(2)
