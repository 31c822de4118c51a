"""`baton chaos`: the parts one after another, their result, and the exit code."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from baton import __version__
from baton.bench.chaos.answers import Answer
from baton.bench.chaos.asks import Ask, make_asks
from baton.bench.chaos.host_process import running_host
from baton.bench.chaos.injector import Deck
from baton.bench.chaos.kinds import ABOUT, HEAVY, LIGHT, Kind
from baton.bench.chaos.load import collect_references
from baton.bench.chaos.part import PartRun
from baton.bench.chaos.plan import PARTS, SHORT_PARTS, HostPlan, reference_config
from baton.bench.chaos.recovery import LIMIT_S
from baton.bench.chaos.report import print_result, summary
from baton.bench.chaos.result import ChaosResult
from baton.config import BatonConfig
from baton.errors import ConfigError

_SHORT_MINUTES = 1.0


def make_kinds(names: Sequence[str]) -> frozenset[Kind]:
    """The kinds of these names, or all. Raises ConfigError naming an unknown one."""
    unknown = sorted(set(names) - {str(kind) for kind in Kind})
    if unknown:
        raise ConfigError(f"--only {unknown[0]}: there is no such kind; use one of {list(ABOUT)}")
    return frozenset(Kind(name) for name in names) or frozenset(Kind)


async def run_chaos(
    config: BatonConfig,
    *,
    minutes: float,
    seed: int,
    kinds: frozenset[Kind],
    pairs: int,
    tell: Callable[[str], None],
) -> ChaosResult:
    """Run it. Raises BatonError when a deployment cannot start or ends as a whole."""
    asks = make_asks(seed)
    done = []
    with tempfile.TemporaryDirectory(prefix="baton-chaos-") as name:
        folder = Path(name)
        # The reference answers are collected beside the start of the first part.
        references = asyncio.create_task(_references(config, asks, folder))
        parts = PARTS if minutes >= _SHORT_MINUTES else SHORT_PARTS
        decks = Deck(sorted(kinds & set(HEAVY)), seed), Deck(sorted(kinds & set(LIGHT)), seed)
        try:
            for number, part in enumerate(parts):
                place = folder / str(number)
                place.mkdir()
                part_seed = seed * len(parts) + number
                run = PartRun(part, asks, references, kinds, decks, pairs, part_seed, tell)
                done.append(await run.run(config, place, minutes * 60 * part.share))
                tell(summary(done[-1]))
        finally:
            references.cancel()
            await asyncio.gather(references, return_exceptions=True)
    return ChaosResult(
        version=__version__,
        model=config.model.name,
        seed=seed,
        minutes=minutes,
        recovery_limit_s=LIMIT_S,
        parts=tuple(done),
    )


async def _references(
    config: BatonConfig, asks: tuple[Ask, ...], folder: Path
) -> dict[str, Answer]:
    plan = HostPlan(config=reference_config(config))
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
    """Run, print, and return 0 when nothing was violated, else 1."""
    if minutes <= 0:
        raise ConfigError(f"--minutes is {minutes:g}; use a positive number")
    if pairs < 1:
        raise ConfigError(f"--pairs is {pairs}; use 1 or more")
    kinds = make_kinds(only)
    with console.status("chaos", spinner="dots") as status:

        def tell(text: str) -> None:
            status.update(text)

        result = asyncio.run(
            run_chaos(config, minutes=minutes, seed=seed, kinds=kinds, pairs=pairs, tell=tell)
        )
    if json_out is not None:
        try:
            json_out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        except OSError as error:
            raise ConfigError(f"--json {json_out}: {error.strerror}") from error
    print_result(result, console)
    return 1 if result.violations else 0
