"""`baton simulate`, apart from the other verbs because of its many options."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from baton.cli_common import check_writable, console_for, data_folder
from baton.errors import ConfigError

_PIPE_COLUMNS = 120
_ATTAINMENT = 0.9


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


Trace = Annotated[Path, _option("trace file", "--trace", "--dataset")]
Route = Annotated[str | None, _option("router.policy", "--route")]
Hardware = Annotated[str | None, _option("a machine by name: a100x8-llama70b, h800x8-llama70b")]
Profile = Annotated[Path | None, _option("a profile of `baton profile` instead")]
Goodput = Annotated[list[str] | None, _option("ttft:MS tpot:MS e2el:MS")]
Attainment = Annotated[
    float | None, _option(f"share that must meet --goodput; {_ATTAINMENT} unless told")
]
Loop = Annotated[
    int, _option("requests open at once; their arrivals do not count", "--closed-loop")
]
Json = Annotated[Path | None, _option("write the figures here", "--json")]
Config = Annotated[Path | None, _option("TOML configuration", "--config")]
Overrides = Annotated[list[str] | None, _option("section.key=value", "--set")]


def simulate(
    trace: Trace,
    format: Annotated[str, _option("of the trace")] = "auto",
    route: Route = None,
    hardware: Hardware = None,
    profile: Profile = None,
    model: Annotated[str | None, _option("with --system: a model, or a config.json")] = None,
    system: Annotated[str | None, _option("a system by name, or its YAML file")] = None,
    tp: Annotated[int | None, _option("GPUs of each worker: tensor parallelism")] = None,
    pp: Annotated[int | None, _option("and pipeline stages")] = None,
    decode_tp: Annotated[int | None, _option("of each decode worker, if others")] = None,
    decode_pp: Annotated[int | None, _option("the same")] = None,
    predictor: Annotated[str | None, _option("this source of step times alone")] = None,
    data: Annotated[Path | None, _option("folder of step-time tables; else BATON_DATA")] = None,
    mfu: Annotated[float | None, _option("share of the peak that prefill achieves")] = None,
    bandwidth: Annotated[float | None, _option("GB/s between two nodes")] = None,
    prefill: Annotated[int | None, _option("prefill workers")] = None,
    decode: Annotated[int | None, _option("decode workers")] = None,
    mixed: Annotated[int | None, _option("colocated workers instead")] = None,
    blocks: Annotated[int | None, _option("K/V blocks of each worker")] = None,
    cache_tokens: Annotated[int | None, _option("the same in tokens")] = None,
    decode_blocks: Annotated[int, _option("of each decode worker, if others")] = 0,
    block_size: Annotated[int | None, _option("tokens of a block; not bound to a kernel's")] = None,
    num: Annotated[int | None, _option("only the first requests of the file")] = None,
    speed: Annotated[float | None, _option("arrivals come so many times faster")] = None,
    tick: Annotated[int, _option("spread equal arrivals over so many ms")] = 0,
    max_output: Annotated[int | None, _option("cut longer answers", "--max-output")] = None,
    whole_blocks: Annotated[bool, typer.Option("--whole-blocks", help="round prompts up")] = False,
    closed_loop: Loop = 0,
    goodput: Goodput = None,
    attainment: Attainment = None,
    max_model_len: Annotated[int, _option("refuse longer requests; 0: none")] = 0,
    seed: Annotated[int, _option("of drawn prompts")] = 0,
    fast: Annotated[bool, typer.Option("--fast", help="iterations instead of messages")] = False,
    fail: Annotated[list[str] | None, _option("WORKER:AT_S:DOWN_S, with --fast")] = None,
    table: Annotated[Path | None, _option("a row of each request: .csv or .parquet")] = None,
    json_out: Json = None,
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Replay a trace through the production router and workers in virtual time."""
    flags = locals()
    from baton.sim.simulate.command import simulate_command

    check_writable(json_out)
    check_writable(table, "--table")
    plan, costs = _plan(flags)
    console = console_for(_PIPE_COLUMNS)
    raise typer.Exit(simulate_command(plan, costs, console, json_out, table))


def _plan(flags: dict[str, Any]) -> tuple[Any, Any]:
    """The flags as a checked plan and the machine that it runs on. Raises ConfigError."""
    from baton.goodput.slo import parse_goodput
    from baton.sim.replay.setup import Delays, ReplaySetup
    from baton.sim.simulate.flags import check_decode_cut, check_flags, failures_of
    from baton.sim.simulate.plan import Plan, TraceOptions, block_counts, costs_of, read_config

    check_flags(flags)
    chosen = costs_of(
        flags["hardware"],
        flags["profile"],
        flags["mfu"],
        flags["bandwidth"],
        _predicted(flags),
    )
    loaded = read_config(flags["config"], _overrides(flags), defaults=chosen.defaults)
    setup = ReplaySetup.from_config(loaded, max_model_len=2, seed=flags["seed"])
    check_decode_cut(flags, setup.roles)
    size = flags["block_size"] or setup.worker.block_size
    setup = msgspec.structs.replace(
        setup,
        worker=msgspec.structs.replace(setup.worker, block_size=size),
        num_blocks=block_counts(flags["blocks"], flags["cache_tokens"], size)
        or chosen.kv_tokens // size,
        num_decode_blocks=flags["decode_blocks"] or _decode_blocks(flags, chosen, size),
        shares_memory=flags["profile"] is not None,
        delays=Delays.of(chosen.costs),
    )
    options = TraceOptions(
        path=flags["trace"],
        format=flags["format"],
        num=flags["num"],
        tick_ms=flags["tick"],
        speed=1.0 if flags["speed"] is None else flags["speed"],
        max_output=flags["max_output"],
        whole_blocks=flags["whole_blocks"],
        concurrency=flags["closed_loop"],
    )
    targets = flags["goodput"]
    plan = Plan(
        trace=options,
        setup=setup,
        hardware=chosen.name,
        config_digest=loaded.digest,
        max_model_len=flags["max_model_len"],
        targets=parse_goodput(targets, flags["attainment"] or _ATTAINMENT) if targets else None,
        is_fast=flags["fast"],
        failures=failures_of(flags["fail"] or []),
        warnings=chosen.warnings,
    )
    return plan, chosen.costs


def _decode_blocks(flags: dict[str, Any], chosen: Any, size: int) -> int:
    """Of decode workers that are cut otherwise; 0: as many as the others have, or were given."""
    is_given = flags["blocks"] is not None or flags["cache_tokens"] is not None
    return 0 if is_given else int(chosen.decode_kv_tokens) // size


def _predicted(flags: dict[str, Any]) -> Any:
    """What --model and --system ask for; None without them. Raises ConfigError for half of it."""
    from baton.hardware.parallel import Parallel
    from baton.sim.simulate.predicted import Predicted

    model, system = flags["model"], flags["system"]
    if model is None and system is None:
        for name in ("tp", "pp", "decode_tp", "decode_pp", "predictor", "data"):
            if flags[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag} {flags[name]} belongs to --model and --system")
        return None
    if model is None or system is None:
        missing = "--model" if model is None else "--system"
        raise ConfigError(f"{missing} is missing: --model and --system go together")
    tp, pp = flags["tp"] or 1, flags["pp"] or 1
    own = flags["decode_tp"], flags["decode_pp"]
    return Predicted(
        model=model,
        system=system,
        parallel=Parallel(tp=tp, pp=pp),
        decode_parallel=Parallel(tp=own[0] or tp, pp=own[1] or pp) if any(own) else None,
        predictor=flags["predictor"],
        data=data_folder(flags["data"]),
    )


def _overrides(flags: dict[str, Any]) -> list[str]:
    """Roles and policy win over --set, as in `baton serve`."""
    chosen = list(flags["overrides"] or [])
    prefill, decode, mixed = flags["prefill"], flags["decode"], flags["mixed"]
    if mixed is not None and (prefill is not None or decode is not None):
        raise ConfigError("--mixed cannot be combined with --prefill or --decode")
    counts = {"prefill": prefill, "decode": decode, "mixed": mixed}
    if mixed is not None:
        counts |= {"prefill": 0, "decode": 0}
    elif prefill is not None or decode is not None:
        counts["mixed"] = 0
    given = {name: count for name, count in counts.items() if count is not None}
    chosen += [f"cluster.{name}={count}" for name, count in given.items()]
    if flags["route"] is not None:
        chosen.append(f"router.policy={flags['route']}")
    return chosen


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("simulate")(simulate)
