"""The verb: check everything that can be refused, measure into the journal, fit, and say it."""

import asyncio
import math
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from baton.bench.profile.assemble import assemble
from baton.bench.profile.delays import measure_delays
from baton.bench.profile.engine_child import EngineChild
from baton.bench.profile.journal import Delayed, Header, Journal, Served, Transferred
from baton.bench.profile.measure import make_plan, measure_alone, measure_beside
from baton.bench.profile.report import ERROR_BOUND, is_within_bound, print_profile
from baton.bench.profile.transfer import measure_transfer
from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.policy.service_profile import ServiceProfile
from baton.profile_file import save_profile
from baton.runtime.model_preparation import prepare_model

_INTERRUPTED = 130


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    config: BatonConfig
    out: Path | None = None
    seed: int = 1
    quick: bool = False
    tbt_ms: tuple[float, ...] = ()

    @property
    def path(self) -> Path:
        """The profile's file."""
        if self.out is not None:
            return self.out
        name = "".join(c if c.isalnum() or c in "-._" else "-" for c in self.config.model.name)
        return Path(f"baton-profile-{name.strip('-')}.json")

    @property
    def journal_path(self) -> Path:
        """Points measured so far."""
        return self.path.with_name(f"{self.path.name}.journal")

    @property
    def points_path(self) -> Path:
        """The raw points of a written profile."""
        return self.path.with_name(f"{self.path.name}.points")


def profile_command(options: ProfileOptions, console: Console) -> int:
    """Measure, print and write a profile; 1 when its error is above the bound, 130 after Ctrl-C."""
    cores = _check(options)
    path = asyncio.run(prepare_model(options.config.model.name, lambda *_: None))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        profile = _measure(options, path, cores, console)
    except KeyboardInterrupt:
        console.print(
            f"interrupted; what was measured is in {options.journal_path}: run the same command "
            "again to go on from there",
            markup=False,
            highlight=False,
        )
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    print_profile(profile, options.tbt_ms, console)
    console.print(f"written to {options.path}", markup=False, highlight=False)
    if not is_within_bound(profile):
        console.print(
            f"the error is above {ERROR_BOUND:.0%}: measure again on a quiet machine", markup=False
        )
        return 1
    return 0


def _check(options: ProfileOptions) -> list[int]:
    """Refuse what cannot work before anything is measured; the cores that may be used."""
    cores = sorted(os.sched_getaffinity(0))
    threads = options.config.worker.threads
    if threads > len(cores):
        raise ConfigError(
            f"worker.threads is {threads}; this process may use {len(cores)} cores, take fewer"
        )
    if wrong := [value for value in options.tbt_ms if not (math.isfinite(value) and value > 0)]:
        raise ConfigError(f"--tbt-ms is {wrong[0]}; give a positive number of milliseconds")
    if options.config.model.device != "cpu":
        raise ConfigError(
            f"model.device is {options.config.model.device!r}; only a CPU engine can be profiled"
        )
    for path in (options.path, options.journal_path):
        if path.is_dir():
            raise ConfigError(f"--out {path} is a folder; name a file")
    existed = options.journal_path.exists()
    try:
        options.path.parent.mkdir(parents=True, exist_ok=True)
        options.journal_path.open("ab").close()
        if options.path.exists():
            options.path.open("ab").close()
    except OSError as error:
        raise ConfigError(f"--out {options.path} cannot be written: {error.strerror}") from error
    if not existed:
        options.journal_path.unlink(missing_ok=True)
    return cores


def _measure(
    options: ProfileOptions, model_path: Path, cores: list[int], console: Console
) -> ServiceProfile:
    threads = options.config.worker.threads
    own, others = tuple(cores[-threads:]), tuple(cores[:-threads][:threads])
    unproven = msgspec.structs.replace(
        options.config, model=msgspec.structs.replace(options.config.model, self_test=False)
    )

    def neighbour() -> EngineChild:
        return EngineChild(unproven, model_path, others)

    config = unproven if options.quick else options.config
    with _progress(console) as progress, EngineChild(config, model_path, own) as child:
        header = Header(
            subject=child.subject, grid=child.grid, seed=options.seed, quick=options.quick
        )
        journal = Journal.open(options.journal_path, header)
        try:
            if journal.num_resumed:
                progress.console.print(f"going on after {journal.num_resumed} measurements")
            plan = make_plan(
                child, options.seed, quick=options.quick, paired=len(others) == threads
            )
            task = progress.add_task("steps", total=plan.num_samples)

            def on_step() -> None:
                progress.advance(task)

            measure_alone(child, plan, journal, on_step)
            measure_beside(child, neighbour, plan, journal, on_step)
            child.close()  # what follows needs the cores
            _measure_serving(options, journal, progress)
            profile = assemble(journal, datetime.now(UTC).isoformat(timespec="seconds"))
            save_profile(profile, options.path)
            journal.archive(options.points_path)
        finally:
            journal.close()
    return profile


def _measure_serving(options: ProfileOptions, journal: Journal, progress: Progress) -> None:
    """The data plane's constants, what a worker adds to its engine, and what lies before it."""
    from baton.bench.profile.overhead import measure_step_overhead  # it loads torch

    num_rounds = 2 if options.quick else 5
    if not any(isinstance(line, Transferred) for line in journal.lines):
        task = progress.add_task("transfer", total=1)
        cost = measure_transfer(options.config.transfer, num_rounds)
        journal.add(Transferred(cost=cost))
        progress.advance(task)
    if not any(isinstance(line, Served) for line in journal.lines):
        task = progress.add_task("serving overhead", total=1)
        overhead = measure_step_overhead(options.config, min(3, num_rounds))
        journal.add(Served(overhead=overhead))
        progress.advance(task)
    if not any(isinstance(line, Delayed) for line in journal.lines):
        task = progress.add_task("gateway and messages", total=1)
        delays = measure_delays(options.config, 24 if options.quick else 96)
        journal.add(Delayed(delays=delays))
        progress.advance(task)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
