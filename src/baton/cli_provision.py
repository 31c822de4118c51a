"""`baton provision`, apart from the other verbs because of its many options."""

from pathlib import Path
from typing import Annotated, Any

import typer

from baton.cli_common import check_writable, console_for, data_folder, seed_list, word
from baton.errors import ConfigError

_PIPE_COLUMNS = 170
_MOST_MACHINES = 4096


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


Trace = Annotated[Path, _option("trace whose lengths are drawn", "--trace", "--workload")]
Machines = Annotated[str, _option("types to choose from, comma-separated")]
Fleets = Annotated[list[str] | None, _option("a fleet, COUNTxTYPE[:COUNTxTYPE]; repeatable")]
Also = Annotated[list[Path] | None, _option("judge the fleets on this trace as well; repeatable")]
Json = Annotated[Path | None, _option("write the answers here", "--json")]


def provision(
    trace: Trace,
    model: Annotated[str, _option("a known name, or the path of a config.json")] = "",
    machines: Machines = "a100,h100,h100cap",
    rate: Annotated[float | None, _option("find the least fleets for so many req/s")] = None,
    budget: Annotated[str, _option("find the fastest: cost:N, power:N or machines:N")] = "",
    fleet: Fleets = None,
    also: Also = None,
    objective: Annotated[str, _option("cost, power or machines, for --rate")] = "cost",
    constants: Annotated[
        str, _option("prices and powers: simulator, tdp, paper, catalogue")
    ] = "simulator",
    reference: Annotated[str, _option("slowdowns are against a request alone on this")] = "",
    slo_scale: Annotated[float, _option("multiply the nine slowdown bounds")] = 1.0,
    tbt: Annotated[str, _option("per_gap, or per_token as Splitwise's simulator")] = "per_gap",
    step: Annotated[float, _option("rates are multiples of this")] = 1.0,
    duration: Annotated[float, _option("seconds of arrivals in a simulation")] = 120.0,
    lengths: Annotated[str, _option("drawn as pairs, or independent")] = "independent",
    cv: Annotated[float, _option("of the gaps between arrivals; 1 is Poisson")] = 1.0,
    seeds: Annotated[str, _option("comma-separated, at least 3")] = "0,1,2",
    spill: Annotated[int, _option("pending prompt tokens that borrow a machine; 0: never")] = 8192,
    link_gbits: Annotated[float | None, _option("of one machine, if not the catalogue's")] = None,
    schedule: Annotated[str, _option("of K/V: layer or request")] = "layer",
    utilization: Annotated[float, _option("share of GPU memory that may be used")] = 0.9,
    max_machines: Annotated[int, _option("of one pool")] = 256,
    predictor: Annotated[str | None, _option("of step times; default: the best for it")] = None,
    format: Annotated[str, _option("of the trace")] = "auto",
    data: Annotated[Path | None, _option("folder of measured tables; BATON_DATA")] = None,
    json_out: Json = None,
) -> None:
    """Choose machines for prompts and tokens: the cheapest for a rate, the fastest for a budget."""
    flags = locals()
    from baton.planner.provision.command import provision_command

    check_writable(json_out)
    question = _question(flags)
    console = console_for(_PIPE_COLUMNS)
    raise typer.Exit(provision_command(question, console, json_out))


def _question(flags: dict[str, Any]) -> Any:
    """The flags, checked. Raises ConfigError."""
    from baton.core.ids import Schedule
    from baton.goodput.slowdown import TBT
    from baton.planner.goodput.draws import Lengths
    from baton.planner.provision.catalogue import Choice
    from baton.planner.provision.command import Question, parse_machines
    from baton.planner.provision.iso import parse_budget
    from baton.planner.provision.search import Objective

    rate, budget = flags["rate"], flags["budget"]
    return Question(
        trace=flags["trace"],
        also=tuple(flags["also"] or ()),
        format=flags["format"],
        choice=Choice(
            model=flags["model"],
            machines=parse_machines(flags["machines"]),
            constants=flags["constants"],
            reference=flags["reference"],
            data=data_folder(flags["data"]),
            predictor=flags["predictor"],
            utilization=flags["utilization"],
            link_gbits=flags["link_gbits"],
            schedule=word(Schedule, flags["schedule"], "--schedule"),
        ),
        rate_per_s=rate,
        budget=parse_budget(budget) if budget else None,
        fleets=tuple(_fleet(one) for one in flags["fleet"] or ()),
        objective=word(Objective, flags["objective"], "--objective"),
        step_per_s=flags["step"],
        duration_s=flags["duration"],
        seeds=seed_list(flags["seeds"], least=3),
        lengths=word(Lengths, flags["lengths"], "--lengths"),
        cv=flags["cv"],
        tbt=word(TBT, flags["tbt"], "--tbt"),
        slo_scale=flags["slo_scale"],
        spill_tokens=flags["spill"],
        max_machines=flags["max_machines"],
    )


def _fleet(text: str) -> Any:
    """Of a size that a simulation can hold. Raises ConfigError."""
    from baton.planner.provision.fleet import parse_fleet

    found = parse_fleet(text)
    if found.num_machines > _MOST_MACHINES:
        raise ConfigError(
            f"--fleet {text!r}: {found.num_machines} machines; at most {_MOST_MACHINES}"
        )
    return found


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("provision")(provision)
