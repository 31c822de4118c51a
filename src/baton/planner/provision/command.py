"""`baton provision` behind its flags."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from baton.errors import ConfigError
from baton.goodput.slowdown import TBT, SlowdownTargets
from baton.output_file import write_file
from baton.planner.goodput.draws import Arrivals, Draws, Lengths
from baton.planner.provision.answer import Answer
from baton.planner.provision.catalogue import Choice, build_service
from baton.planner.provision.fleet import Fleet
from baton.planner.provision.iso import Budget
from baton.planner.provision.load import Load
from baton.planner.provision.printed import print_answer
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import Grid
from baton.planner.provision.search import (
    Objective,
    fleets_for_budget,
    fleets_for_rate,
    num_parts,
    rates_of_fleets,
)
from baton.planner.provision.service import Rules
from baton.sim.fast.deployment import Spill
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.load import load_trace

_BOUNDS: dict[str, tuple[str, float, float, str]] = {
    "--step": ("step_per_s", 1e-6, 1e6, "requests/s between two rates"),
    "--cv": ("cv", 0.01, 10.0, "variation of the gaps between arrivals"),
    "--slo-scale": ("slo_scale", 1e-3, 1e6, "a factor of the nine bounds"),
    "--spill": ("spill_tokens", 0, 10**12, "prompt tokens that wait, 0 for never"),
    "--max-machines": ("max_machines", 1, 65_536, "machines of one pool"),
}
"""Flag, field, least, most, meaning."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The flags, checked; exactly one of rate, budget and fleets."""

    trace: Path
    also: tuple[Path, ...] = ()
    """Other workloads for the same fleets."""
    format: str = "auto"
    choice: Choice
    rate_per_s: float | None = None
    budget: tuple[Budget, float] | None = None
    fleets: tuple[Fleet, ...] = ()
    objective: Objective | None = None
    step_per_s: float = 1.0
    duration_s: float = 120.0
    seeds: tuple[int, ...] = (0, 1, 2)
    lengths: Lengths = Lengths.INDEPENDENT
    cv: float = 1.0
    tbt: TBT = TBT.PER_GAP
    slo_scale: float = 1.0
    spill_tokens: int = 8192
    """0: no machine ever takes over the other phase."""
    max_machines: int = 256

    def __post_init__(self) -> None:
        given = [self.rate_per_s is not None, self.budget is not None, bool(self.fleets)]
        if sum(given) != 1:
            raise ConfigError("give exactly one of --rate, --budget and --fleet")
        if self.rate_per_s is not None and not self.rate_per_s > 0:
            raise ConfigError(f"--rate {self.rate_per_s:g}: requests a second, above 0")
        for flag, (name, least, most, what) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"{flag} {value:g}: {what}, from {least:g} to {most:g}")
        if self.also and not self.fleets:
            raise ConfigError("--also judges given fleets on another trace: name them by --fleet")


class Progress:
    """A line for people: parts of the search that are done, and the latest simulation."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        text = TextColumn("{task.description}")
        self._bar = Bar(*columns, text, console=console, transient=True)
        self._task = self._bar.add_task("", total=total, completed=-1)
        self._part = ""

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def part(self, text: str) -> None:
        """The one before is done."""
        self._part = text
        self._bar.update(self._task, advance=1, description=text)

    def simulated(self, text: str) -> None:
        """One more simulation."""
        self._bar.update(self._task, description=f"{self._part}: {text}"[:90])


def provision(question: Question, progress: Progress) -> list[Answer]:
    """One answer for each trace."""
    return [_answer(question, path, progress) for path in (question.trace, *question.also)]


def provision_command(question: Question, console: Console, json_out: Path | None) -> int:
    """Search with a progress line, print, and write the answers."""
    parts = num_parts(len(question.choice.machines), len(question.fleets))
    with Progress(console, parts * (1 + len(question.also))) as progress:
        answers = provision(question, progress)
    for answer in answers:
        print_answer(answer, console)
    if json_out is not None:
        write_file(json_out, msgspec.json.format(msgspec.json.encode(answers), indent=1) + b"\n")
    return 0 if all(answer.designs for answer in answers) else 1


def _answer(question: Question, path: Path, progress: Progress) -> Answer:
    trace = pack(load_trace(path, question.format))
    prober, say = _prober(question, trace, path.name, progress), progress.part
    machines, seeds = question.choice.machines, question.seeds
    grid = Grid(step_per_s=question.step_per_s)
    if question.rate_per_s is not None:
        return fleets_for_rate(
            prober,
            machines,
            question.rate_per_s,
            seeds,
            question.objective or Objective.COST,
            question.max_machines,
            say,
        )
    if question.budget is not None:
        return fleets_for_budget(prober, machines, *question.budget, grid, seeds, say)
    return rates_of_fleets(prober, question.fleets, grid, seeds, say)


def _prober(question: Question, trace: FastWorkload, name: str, progress: Progress) -> Prober:
    spill = Spill(pending_tokens=question.spill_tokens) if question.spill_tokens else None
    is_poisson = question.cv == 1.0
    arrivals = Arrivals.POISSON if is_poisson else Arrivals.GAMMA
    return Prober(
        service=build_service(question.choice, Rules(spill=spill)),
        load=Load(
            trace=trace,
            duration_s=question.duration_s,
            name=name,
            draws=Draws(arrivals=arrivals, cv=question.cv, lengths=question.lengths),
        ),
        targets=SlowdownTargets().scaled(question.slo_scale),
        tbt=question.tbt,
        say=progress.simulated,
    )


def parse_machines(text: str) -> tuple[str, ...]:
    """A comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
