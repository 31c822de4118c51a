"""`baton plan`, apart from the other verbs because of its many options."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from baton.cli_common import (
    check_folder_writable,
    check_writable,
    console_for,
    data_folder,
    seed_list,
    word,
)
from baton.errors import ConfigError
from baton.output_file import write_file

if TYPE_CHECKING:
    from baton.planner.plan.inputs import Inputs
    from baton.planner.plan.question import Question
    from baton.planner.plan.run import Found, Watch

_PIPE_COLUMNS = 140
_EXTRA = "install kvbaton[plan]"


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


Trace = Annotated[Path, _option("your requests", "--trace", "--dataset")]
Model = Annotated[str, _option("a name, or the path of a config.json")]
System = Annotated[str, _option("kind of GPU, or the path of a YAML file")]
Time = _option("milliseconds, or with a unit: 500, 500ms, 0.5s")
Attainment = Annotated[float, _option("share of the requests that must meet each target")]
Rate = Annotated[float | None, _option("requests a second that must be served; else the most")]
Data = Annotated[Path | None, _option("folder of measurements; BATON_DATA")]
Profile = Annotated[Path | None, _option("this machine as `baton profile` measured it")]
Arrivals = Annotated[str, _option("poisson, gamma with --cv, or trace for its own gaps")]
Contract = Annotated[str, _option("phases: each clock by itself; joint: both at once")]
Safety = Annotated[float, _option("by what share split must be better to be worth it")]
Requests = Annotated[int | None, _option("of each simulation; else what the precision needs")]
KvTokens = Annotated[int | None, _option("K/V tokens of one instance, instead of its memory")]
OutDir = Annotated[Path | None, _option("write ready deployments here", "--out-dir")]
Html = Annotated[Path | None, _option("write a page of figures here", "--html")]
Json = Annotated[Path | None, _option("write everything here", "--json")]
Explain = Annotated[bool, typer.Option("--explain", help="each number's formula and source")]
Control = Annotated[
    bool, typer.Option("--controller", help="let the split's counts follow the trace's own load")
]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="every batch policy and every cut; minutes")
]


def plan(
    trace: Trace,
    ttft: Annotated[str, Time],
    tpot: Annotated[str, Time],
    gpus: Annotated[int, _option("at most so many")],
    model: Model = "",
    system: System = "",
    attainment: Attainment = 0.9,
    rate: Rate = None,
    data: Data = None,
    profile: Profile = None,
    predictor: Annotated[str, _option("a source of step times by name")] = "",
    format: Annotated[str, _option("of the trace")] = "auto",
    num: Annotated[int | None, _option("only the first requests of the trace")] = None,
    arrivals: Arrivals = "poisson",
    cv: Annotated[float | None, _option("of gamma gaps; 1 is Poisson, more is burstier")] = None,
    route: Annotated[str, _option("who serves a request, in both plans")] = "shortest_queue",
    contract: Contract = "phases",
    safety: Safety = 0.05,
    utilization: Annotated[float, _option("share of a GPU's memory that may be used")] = 0.9,
    kv_tokens: KvTokens = None,
    seeds: Annotated[str, _option("comma-separated, at least 3")] = "0,1,2,3,4,5,6",
    requests: Requests = None,
    thorough: Thorough = False,
    explain: Explain = False,
    controller: Control = False,
    html_out: Html = None,
    json_out: Json = None,
    out_dir: OutDir = None,
) -> None:
    """Should prefill and decode be split, and how? From your own trace and hardware."""
    flags = locals()
    console = console_for(_PIPE_COLUMNS)
    question = _question(flags)
    for path, flag in ((html_out, "--html"), (json_out, "--json")):
        check_writable(path, flag)
    if html_out is not None and json_out is not None and html_out.resolve() == json_out.resolve():
        raise ConfigError(f"--html {html_out}: --json is the same file; name two")
    check_folder_writable(out_dir, "--out-dir")
    _require(html_out, out_dir)
    inputs, found = _found(question, console)
    _print(found, inputs, console, explains=explain)
    if controller:
        _control(found, inputs, console)
    _write(found, inputs, console, html_out, json_out, out_dir)


def _question(flags: dict[str, Any]) -> "Question":
    from baton.planner.goodput.answer import Contract
    from baton.planner.goodput.draws import Arrivals
    from baton.planner.plan.question import Question, targets_of

    return Question(
        trace=flags["trace"],
        targets=targets_of(flags["ttft"], flags["tpot"], flags["attainment"]),
        gpus=flags["gpus"],
        model=flags["model"],
        system=flags["system"],
        profile=flags["profile"],
        data=data_folder(flags["data"]),
        predictor=flags["predictor"],
        format=flags["format"],
        limit=flags["num"],
        rate_per_s=flags["rate"],
        contract=word(Contract, flags["contract"], "--contract"),
        arrivals=word(Arrivals, flags["arrivals"], "--arrivals"),
        cv=flags["cv"],
        route=flags["route"],
        safety=flags["safety"],
        seeds=seed_list(flags["seeds"], least=3),
        utilization=flags["utilization"],
        thorough=flags["thorough"],
        kv_tokens=flags["kv_tokens"],
        num_requests=flags["requests"],
    )


def _require(html_out: Path | None, out_dir: Path | None) -> None:
    """A library that is missing is told before the search and not after it."""
    import importlib.util

    wanted = [(html_out, "--html", "plotly")]
    wanted += [(out_dir, "--out-dir", name) for name in ("kubernetes_validate", "yaml")]
    for given, flag, name in wanted:
        if given is not None and importlib.util.find_spec(name) is None:
            raise ConfigError(f"{flag} needs {name}, which is not installed; {_EXTRA}")


def _found(question: "Question", console: Console) -> "tuple[Inputs, Found]":
    from baton.planner.plan.inputs import load_inputs
    from baton.planner.plan.run import make_plan

    inputs = load_inputs(question)
    with _watching(console) as watch:
        return inputs, make_plan(inputs, watch)


@contextmanager
def _watching(console: Console) -> "Iterator[Watch]":
    from baton.planner.plan.run import STAGES, Watch

    bar = Progress(
        TextColumn("{task.description:14}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=len(STAGES), text="")

        def stage(number: int, name: str) -> None:
            bar.update(task, completed=number, description=name, text="")

        def say(text: str) -> None:
            bar.update(task, text=text[: max(10, console.width - 70)])

        yield Watch(stage=stage, say=say)


def _print(found: "Found", inputs: "Inputs", console: Console, *, explains: bool) -> None:
    from baton.planner.plan.explain import explain
    from baton.planner.plan.table import print_plan

    print_plan(found.result, console)
    if not explains:
        return
    table = Table("number", "value", "formula", "source", box=None, pad_edge=False)
    for fact in explain(found.result, inputs):
        table.add_row(fact.name, fact.value, fact.formula, fact.source)
    console.print(table)


def _control(found: "Found", inputs: "Inputs", console: Console) -> None:
    from baton.planner.controller.report import print_outcomes
    from baton.planner.plan.controlled import controlled

    split = next((arm for arm in (found.winner, found.runner_up) if arm and arm.paths), None)
    if split is None or not split.goodput_per_s > 0:
        raise ConfigError("--controller: no split meets the targets, so there is none to control")
    print_outcomes(controlled(split, inputs), console)


def _write(
    found: "Found",
    inputs: "Inputs",
    console: Console,
    html_out: Path | None,
    json_out: Path | None,
    out_dir: Path | None,
) -> None:
    if json_out is not None:
        write_file(json_out, msgspec.json.format(msgspec.json.encode(found.result)) + b"\n")
    if html_out is not None:
        from baton.bench.plan.page import write_plan_page
        from baton.planner.plan.explain import explain

        write_plan_page(html_out, found.result, explain(found.result, inputs))
    if out_dir is not None:
        from baton.planner.plan.deployments import write_arms

        for path in write_arms(out_dir, found, inputs):
            console.print(f"wrote {path}", highlight=False, markup=False)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(plan)
