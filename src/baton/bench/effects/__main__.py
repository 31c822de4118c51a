"""`make effects`: the effects X5 to X11 with real processes, each beside its accept line."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from rich.console import Console

from baton.bench.effects.credit import measure_credit
from baton.bench.effects.drill import measure_drill
from baton.bench.effects.effect import Effect, exit_code, print_effects
from baton.bench.effects.exactness import measure_exactness
from baton.bench.effects.ledger import measure_ledger, measure_reuse
from baton.bench.effects.overlap import measure_overlap
from baton.bench.effects.runahead import measure_runahead
from baton.errors import BatonError, ConfigError

_WIDTH = 150
"""Columns of the table where no terminal says how many there are."""


async def _drill(model: str) -> Effect:
    del model  # in virtual time, with a model that computes in integers
    return measure_drill()


MEASURES: dict[str, Callable[[str], Awaitable[Effect]]] = {
    "x5": measure_exactness,
    "x6": measure_ledger,
    "x7": measure_overlap,
    "x8": measure_credit,
    "x9": measure_reuse,
    "x10": _drill,
    "x11": measure_runahead,
}


def chosen(only: str) -> tuple[str, ...]:
    """The ids of `--only`, in order. Raises ConfigError naming the unknown one."""
    names = tuple(name.strip().lower() for name in only.split(",") if name.strip())
    for name in names:
        if name not in MEASURES:
            raise ConfigError(f"--only {name}: no such effect; use some of {', '.join(MEASURES)}")
    return tuple(name for name in MEASURES if not names or name in names)


async def measure(names: tuple[str, ...], model: str, console: Console) -> list[Effect]:
    """One effect after another; each has the machine for itself."""
    effects = []
    for name in names:
        began_s = time.monotonic()
        effect = await MEASURES[name](model)
        effects.append(effect)
        took_s = time.monotonic() - began_s
        line = f"{effect.id} {effect.verdict}, {took_s:.0f} s"
        console.print(line, markup=False, highlight=False)
    return effects


def main(arguments: list[str] | None = None) -> int:
    """Measure, print one table, and return 1 when an effect is not met."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.effects", description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default="", help="ids, as x7,x11; all without it")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument("--report-only", action="store_true", help="exit 0 whatever is measured")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        names = chosen(options.only)
        effects = asyncio.run(measure(names, options.model, console))
        if options.json is not None:
            _write(options.json, effects)
    except BatonError as error:
        print(f"effects: {error}", file=sys.stderr)
        return 2
    print_effects(effects, console, f"Effects on this machine, {options.model}")
    return 0 if options.report_only else exit_code(effects)


def _write(path: Path, effects: list[Effect]) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(effects), indent=1))
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
