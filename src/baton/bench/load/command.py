"""`baton bench`: inspect the server, run the load, show and keep what came of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from baton.bench.load import html_page, table
from baton.bench.load.display import Display
from baton.bench.load.inspect import inspect_target
from baton.bench.load.making import describe, make_requests
from baton.bench.load.measured import Measured, measure
from baton.bench.load.result import result_of
from baton.bench.load.session import ProbeRun, Session, best_of
from baton.bench.load.settings import BenchSettings
from baton.bench.load.target import Abilities
from baton.errors import BatonError
from baton.goodput.search import Goodput
from baton.signals import Interrupt, interrupts
from baton.workload.request import Workload

LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None


class BenchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of the command gave."""

    abilities: Abilities
    workload: Workload
    measured: Measured
    probes: list[ProbeRun] | None = None
    goodput: Goodput | None = None


def bench_command(settings: BenchSettings, console: Console, loop_factory: LoopFactory) -> int:
    """Run it all. Exit code 0, 1 when no request completed, 128 + signal when interrupted."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        stop = runner.run(_event())
        loop = runner.get_loop()
        with interrupts(lambda: _ask_to_stop(loop, stop)) as asked:
            outcome = runner.run(_bench(settings, console, stop))
    _show(outcome, settings, console, asked)
    if asked:
        return asked.exit_code
    return 0 if outcome.measured.throughput["completed"] else 1


async def _event() -> asyncio.Event:
    return asyncio.Event()


def _ask_to_stop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    loop.call_soon_threadsafe(stop.set)


async def _bench(settings: BenchSettings, console: Console, stop: asyncio.Event) -> BenchOutcome:
    abilities = await inspect_target(settings.target)
    requests = make_requests(settings.data, abilities, settings.options.seed)
    console.print(f"[b]{escape(abilities.model)}[/] at {settings.target.base_url}", highlight=False)
    for note in (
        f"prompts are {abilities.prompt_kind}",
        *requests.notes,
        *_missing(settings, abilities),
    ):
        console.print(f"  {note}", style="dim", markup=False, highlight=False)
    with Display(console) as display:
        session = Session(settings, abilities, requests, display.watch, stop)
        if settings.search is None:
            workload, records = await session.run_once()
            console.print(describe(workload), markup=False, highlight=False, soft_wrap=True)
            measured = measure([records], settings.targets, settings.counting)
            return BenchOutcome(abilities=abilities, workload=workload, measured=measured)
        probes, goodput = await session.search(settings.search)
    if not probes:
        raise BatonError("interrupted before the first rate was measured; nothing to report")
    best = best_of(probes, goodput)
    return BenchOutcome(
        abilities=abilities,
        workload=best.workload,
        measured=best.measured,
        probes=probes,
        goodput=goodput,
    )


def _missing(settings: BenchSettings, abilities: Abilities) -> list[str]:
    """What the server does not take, and what that means for the figures."""
    notes = []
    if settings.options.ignore_eos and "ignore_eos" not in abilities.extra_fields:
        notes.append("the server refuses ignore_eos: outputs may be shorter than wanted")
    if not abilities.has_usage:
        notes.append("the server reports no usage: tokens are counted by chunks")
    return notes


def _show(
    outcome: BenchOutcome, settings: BenchSettings, console: Console, asked: Interrupt
) -> None:
    measured = outcome.measured
    if asked:
        console.print("[b yellow]interrupted[/]: this is what was measured until then")
    if outcome.probes is not None:
        table.print_search(outcome.probes, outcome.goodput, console)
    console.print()
    table.print_measured(measured, console)
    if warning := table.late_warning(measured):
        console.print(warning, style="bold yellow", markup=False, soft_wrap=True)
    if settings.json_out is not None:
        found = result_of(
            settings,
            outcome.abilities,
            outcome.workload,
            measured,
            probes=outcome.probes,
            goodput=outcome.goodput,
            interrupted=bool(asked),
        )
        settings.json_out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
        _say_written(settings.json_out, console)
    if settings.html_out is not None:
        html_page.write_page(
            settings,
            outcome.abilities,
            outcome.workload,
            measured,
            probes=outcome.probes,
            goodput=outcome.goodput,
            interrupted=bool(asked),
        )
        _say_written(settings.html_out, console)


def _say_written(path: Path, console: Console) -> None:
    console.print(f"wrote {path}", markup=False, highlight=False)
