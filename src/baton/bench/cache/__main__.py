"""`make bench-cache`: what each caching milestone saves, and when the disk beats recompute."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console

from baton.bench.cache.budget import Budget
from baton.bench.cache.disk import LENGTHS, DiskTier, measure_disk, print_disk
from baton.bench.cache.milestones import Milestones, measure_milestones, print_milestones
from baton.bench.cache.talk import Script
from baton.errors import BatonError, ConfigError

_WIDTH = 150
_PARTS = ("milestones", "disk")
_MILESTONES_SHARE = 0.75
"""Of the time, where both parts are measured."""


class Result(msgspec.Struct, kw_only=True):
    """Everything that was measured, for programs."""

    model: str
    milestones: Milestones | None = None
    disk: DiskTier | None = None

    @property
    def is_met(self) -> bool:
        """No accept line was missed."""
        return all(part is None or part.is_met for part in (self.milestones, self.disk))


async def measure(options: argparse.Namespace, console: Console) -> Result:
    """One part after another; each has the machine for itself."""
    result = Result(model=options.model)
    parts = _chosen(options.only)
    began_s = time.monotonic()

    def said(text: str) -> None:
        took_s = time.monotonic() - began_s
        console.print(f"{took_s:4.0f} s  {text}", markup=False, highlight=False)

    if "milestones" in parts:
        script = Script(num_sessions=options.sessions, num_turns=options.turns)
        share = _MILESTONES_SHARE if "disk" in parts else 1.0
        budget = Budget(60 * options.minutes * share, said)
        found = await measure_milestones(options.model, script, options.rounds, budget)
        result.milestones = found
        print_milestones(found, console)
    if "disk" in parts:
        budget = Budget(60 * options.minutes - (time.monotonic() - began_s), said)
        result.disk = await measure_disk(options.model, options.rounds, LENGTHS, budget)
        print_disk(result.disk, console)
    return result


def _chosen(only: str) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in only.split(",") if name.strip())
    for name in names:
        if name not in _PARTS:
            raise ConfigError(f"--only {name}: no such part; use some of {', '.join(_PARTS)}")
    return names or _PARTS


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return 1 when an accept line is not met."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.cache", description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default="", help=f"some of {', '.join(_PARTS)}; all without it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9.0, help="rounds that fit into them")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument("--report-only", action="store_true", help="exit 0 whatever is measured")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        for name, least in (("rounds", 1), ("sessions", 1), ("turns", 2)):
            if getattr(options, name) < least:
                value = getattr(options, name)
                raise ConfigError(f"--{name} {value} is too few; use {least} or more")
        result = asyncio.run(measure(options, console))
        if options.json is not None:
            _write(options.json, result)
    except BatonError as error:
        print(f"bench-cache: {error}", file=sys.stderr)
        return 2
    return 0 if options.report_only or result.is_met else 1


def _write(path: Path, result: Result) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
