"""`baton explore`: one search per direction, its report, and the exit status."""

import math

from rich.console import Console

from baton.core.ids import Direction
from baton.errors import ConfigError
from baton.sim.explore.model import Model
from baton.sim.explore.report import lines, title
from baton.sim.explore.search import Result, Search
from baton.sim.explore.setup import Setup

EXHAUSTED, BROKEN, STOPPED, INTERRUPTED = 0, 1, 3, 130


def directions_of(name: str) -> tuple[Direction, ...]:
    """The directions that `--direction` names."""
    if name == "both":
        return tuple(Direction)
    if name not in tuple(Direction):
        raise ConfigError(f"--direction is {name!r}; choose push, pull or both")
    return (Direction(name),)


def explore_command(
    setups: list[Setup], console: Console, *, max_states: int, minutes: float, check_every: int
) -> int:
    """Search every setup and print what was found; 0 when all were exhausted without a fault."""
    _check_limits(max_states, minutes, check_every)
    status = EXHAUSTED
    for setup in setups:
        console.print(title(setup), highlight=False, markup=False, soft_wrap=True)
        model = Model(setup, check_every)
        with console.status("exploring") as shown:
            search = Search(
                model,
                max_states=max_states,
                max_seconds=60 * minutes,
                progress=lambda result: shown.update(_progress(result)),
            )
            interrupted = False
            try:
                search.run()
            except KeyboardInterrupt:
                interrupted = True
        result = search.result
        if interrupted:
            console.print("interrupted", highlight=False)
        for line in lines(result, model):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if result.counterexample is not None:
            return BROKEN
        if interrupted:
            return INTERRUPTED
        status = status if result.exhausted else STOPPED
    return status


def _check_limits(max_states: int, minutes: float, check_every: int) -> None:
    if max_states < 1:
        raise ConfigError(f"--max-states is {max_states}; use a positive number")
    if not 0 < minutes < math.inf:
        raise ConfigError(f"--minutes is {minutes:g}; use a positive number")
    if check_every < 0:
        raise ConfigError(f"--self-check is {check_every}; use 1 or more, or 0 for none")


def _progress(result: Result) -> str:
    return f"depth {result.depth}: {result.num_states:,} states, {result.seconds:.0f} s"
