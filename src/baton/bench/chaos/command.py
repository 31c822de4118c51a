"""`baton chaos`: the parts one after another, their result, and the exit code."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from baton import __version__
from baton.bench.chaos.answers import Answer
from baton.bench.chaos.asks import Ask, make_asks
from baton.bench.chaos.folder import run_folder
from baton.bench.chaos.host_process import running_host
from baton.bench.chaos.injector import Deck
from baton.bench.chaos.kinds import ABOUT, HEAVY, LIGHT, Kind
from baton.bench.chaos.load import collect_references
from baton.bench.chaos.part import PartRun
from baton.bench.chaos.plan import PARTS, SHORT_PARTS, HostPlan, reference_config
from baton.bench.chaos.progress import Progress
from baton.bench.chaos.recovery import LIMIT_S
from baton.bench.chaos.report import print_result, summary
from baton.bench.chaos.result import ChaosResult, PartResult
from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.signals import interrupts

_SHORT_MINUTES = 1.0


def make_kinds(names: Sequence[str]) -> frozenset[Kind]:
    """The kinds of these names, or all. Raises ConfigError naming an unknown one."""
    unknown = sorted(set(names) - {str(kind) for kind in Kind})
    if unknown:
        raise ConfigError(
            f"--only {unknown[0]}: there is no such kind; use one of {', '.join(ABOUT)}"
        )
    return frozenset(Kind(name) for name in names) or frozenset(Kind)


async def run_chaos(
    config: BatonConfig,
    *,
    minutes: float,
    seed: int,
    kinds: frozenset[Kind],
    pairs: int,
    progress: Progress,
) -> ChaosResult:
    """Run it; when cancelled, what was judged until then, and everything is torn down.

    Raises BatonError when a deployment cannot start or ends as a whole.
    """
    asks = make_asks(seed)
    done: list[PartResult] = []
    was_interrupted = False
    with run_folder() as folder:
        # The reference answers are collected beside the start of the first part.
        references = asyncio.create_task(_references(config, asks, folder, progress))
        parts = PARTS if minutes >= _SHORT_MINUTES else SHORT_PARTS
        decks = Deck(sorted(kinds & set(HEAVY)), seed), Deck(sorted(kinds & set(LIGHT)), seed)

        async def run_parts() -> None:
            for number, part in enumerate(parts):
                place = folder / str(number)
                place.mkdir()
                part_seed = seed * len(parts) + number
                run = PartRun(part, asks, references, kinds, decks, pairs, part_seed, progress)
                progress.stage(f"part {number + 1} of {len(parts)}, {part.name}: starting")
                done.append(run.result)
                await run.run(config, place, minutes * 60 * part.share)
                progress.stage(summary(run.result))

        running = asyncio.create_task(run_parts())
        try:
            await asyncio.wait((running,))
            running.result()
        except asyncio.CancelledError:
            was_interrupted = True
        finally:  # both deployments are torn down side by side
            running.cancel()
            references.cancel()
            await asyncio.gather(running, references, return_exceptions=True)
    return ChaosResult(
        version=__version__,
        model=config.model.name,
        seed=seed,
        minutes=minutes,
        recovery_limit_s=LIMIT_S,
        was_interrupted=was_interrupted,
        parts=tuple(part for part in done if part.duration_s),
    )


async def _references(
    config: BatonConfig, asks: tuple[Ask, ...], folder: Path, progress: Progress
) -> dict[str, Answer]:
    plan = HostPlan(config=reference_config(config))
    progress.stage(f"references: {len(asks)} prompts on a calm colocated deployment")
    async with running_host(plan, folder / "reference.log") as host:
        return await collect_references(host.address, asks)


def chaos_command(
    config: BatonConfig,
    console: Console,
    *,
    minutes: float,
    seed: int,
    only: Sequence[str],
    pairs: int,
    json_out: Path | None,
) -> int:
    """Run, print, and return 0 when nothing was violated, 1 if something was.

    SIGINT and SIGTERM end it early: everything is torn down, what was judged so far is printed,
    and the exit code says so.
    """
    if not 0 < minutes < math.inf:
        raise ConfigError(f"--minutes is {minutes:g}; use a positive number")
    if pairs < 1:
        raise ConfigError(f"--pairs is {pairs}; use 1 or more")
    kinds = make_kinds(only)
    progress = Progress(console)

    async def run() -> tuple[ChaosResult, int]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            progress.stage("interrupted, tearing down")
            task.cancel()

        def stop_soon() -> None:
            loop.call_soon_threadsafe(stop)

        with interrupts(stop_soon) as asked:
            result = await run_chaos(
                config, minutes=minutes, seed=seed, kinds=kinds, pairs=pairs, progress=progress
            )
        return result, asked.exit_code if result.was_interrupted else 0

    with progress.status:
        result, exit_code = asyncio.run(run())
    if json_out is not None:
        try:
            json_out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        except OSError as error:
            raise ConfigError(f"--json {json_out}: {error.strerror}") from error
    if result.parts or not result.was_interrupted:
        print_result(result, console)
    return 1 if result.violations else exit_code
