"""`baton race`: run it, print it, write it."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from baton.bench.chaos.progress import Progress
from baton.bench.effects.effect import exit_code
from baton.bench.race.contest import Contest, long_prompts, short_prompts, trace_contest
from baton.bench.race.plan import RacePlan
from baton.bench.race.prediction import by_threads
from baton.bench.race.report import write_race_report
from baton.bench.race.result import RaceResult
from baton.bench.race.run import encode_result, run_race
from baton.bench.race.table import print_race
from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.policy.service_profile import ServiceProfile
from baton.profile_file import load_profile
from baton.signals import interrupts
from baton.workload.fit import scale
from baton.workload.load import load_trace

_BUILT_IN = {"long-prompt": long_prompts, "short-prompt": short_prompts}


class TraceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A user's trace in place of the built-in workloads."""

    path: Path
    format: str = "auto"
    scale: float = 1.0
    max_model_len: int = 2048


def trace_choice(
    path: Path | None, format: str, scale: float, max_model_len: int
) -> TraceChoice | None:
    """What the flags say; None without a path."""
    if path is None:
        return None
    return TraceChoice(path=path, format=format, scale=scale, max_model_len=max_model_len)


def make_contests(names: tuple[str, ...], trace: TraceChoice | None) -> list[Contest]:
    """The workloads of these names, or the trace's. Raises ConfigError on an unknown one."""
    if trace is not None:
        lengths = load_trace(trace.path, trace.format)
        if trace.scale != 1.0:
            lengths = scale(lengths, trace.scale)
        return [trace_contest(lengths, trace.max_model_len)]
    for name in names:
        if name not in _BUILT_IN:
            known = ", ".join(_BUILT_IN)
            raise ConfigError(f"--workload {name}: there is none of that name; use {known}")
    return [_BUILT_IN[name]() for name in names]


def race_command(
    config: BatonConfig,
    plan: RacePlan,
    trace: TraceChoice | None,
    console: Console,
    html: Path | None,
    json_out: Path | None,
    *,
    strict: bool,
) -> int:
    """Race and report; 1 with `strict` when an effect is not met, 130 when interrupted."""
    contests = make_contests(plan.contests, trace)
    profiles = [load_profile(Path(path)) for path in plan.profiles]
    by_threads(profiles)
    progress = Progress(console, "race")
    with tempfile.TemporaryDirectory(prefix="baton-race-") as name, progress.status:
        result = _run(config, plan, contests, profiles, Path(name), progress)
    if result is None:
        console.print("interrupted; every process of the race has ended")
        return 130
    print_race(result, console)
    if json_out is not None:
        json_out.write_bytes(encode_result(result))
        console.print(f"result: {json_out}", highlight=False, soft_wrap=True)
    if html is not None:
        write_race_report(html, result)
        console.print(f"report: {html}", highlight=False, soft_wrap=True)
    return exit_code(result.effects) if strict else 0


def _run(
    config: BatonConfig,
    plan: RacePlan,
    contests: list[Contest],
    profiles: list[ServiceProfile],
    folder: Path,
    progress: Progress,
) -> RaceResult | None:
    async def run() -> RaceResult | None:
        task = asyncio.create_task(
            run_race(config, plan, contests, profiles, folder, progress.stage)
        )
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with interrupts(end), contextlib.suppress(asyncio.CancelledError):
            return await task
        return None

    return asyncio.run(run())
