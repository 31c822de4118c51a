"""Every reproduction there is: modules of this package named r<number>, and the simulator's own."""

import importlib
import pkgutil
import re
from collections.abc import Callable

from baton.errors import ConfigError
from baton.planner import reproduce
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row
from baton.sim.reproduce.__main__ import TARGETS, WITHOUT_DATA
from baton.sim.reproduce.check import Check
from baton.sim.reproduce.data import TRACES, Data

MODULE = re.compile(r"r\d+$")
REPLAYED = {
    "reuse": "K/V reuse by cache size",
    "r16": "Mooncake: prefill scheduling policies",
    "r17": "Mooncake: balancing threshold",
    "r18": "Mooncake: cache-size curve",
    "r21": "Mooncake: break-even link",
    "r22": "Mooncake: bandwidth cliff",
    "r25": "MemServe: bytes of each milestone",
}


def reproductions() -> dict[str, Reproduction]:
    """By id, in the order of their numbers."""
    found = {one.target_id: one for one in (*_own(), *_replayed())}
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def choose(only: str) -> list[Reproduction]:
    """Those of a comma-separated list; all for an empty one."""
    known = reproductions()
    words = [word.strip() for word in only.split(",") if word.strip()] or list(known)
    for word in words:
        if word not in known:
            raise ConfigError(f"--only {word!r}: not known; use {', '.join(known)}")
    return [known[word] for word in dict.fromkeys(words)]


def _order(target_id: str) -> tuple[int, str]:
    digits = target_id.removeprefix("r")
    return (int(digits) if digits.isdigit() else 0, target_id)


def _own() -> list[Reproduction]:
    names = sorted(one.name for one in pkgutil.iter_modules(reproduce.__path__))
    return [_of_module(name) for name in names if MODULE.match(name)]


def _of_module(name: str) -> Reproduction:
    """A module that is broken is a reproduction that fails, so that the others still run."""
    path = f"{reproduce.__name__}.{name}"
    try:
        one = importlib.import_module(path).REPRODUCTION
        assert isinstance(one, Reproduction), f"{path}.REPRODUCTION is none"
        return one
    except Exception as error:
        problem = error

    def run(context: Context) -> list[Row]:
        raise problem

    return Reproduction(target_id=name, title=f"{path} cannot be loaded", source=path, run=run)


def _replayed() -> list[Reproduction]:
    """Results that run on the production nodes (`baton.sim.reproduce`)."""
    return [
        Reproduction(
            target_id=target_id,
            title=REPLAYED.get(target_id, target_id),
            source="through the production nodes",
            run=_rows_of(checks),
            files=() if target_id in WITHOUT_DATA else tuple(TRACES.values()),
        )
        for target_id, checks in TARGETS.items()
    ]


def _rows_of(checks: Callable[[Data], list[Check]]) -> Callable[[Context], list[Row]]:
    def run(context: Context) -> list[Row]:
        return [_row(one) for one in checks(Data(folder=context.folder, num=context.num))]

    return run


def _row(check: Check) -> Row:
    return Row(
        target_id=check.target,
        what=check.what,
        target=check.published,
        tolerance=check.accepted,
        measured=f"{check.measured:.4g} {check.unit}".rstrip(),
        interval="no seed enters",
        met=check.met if check.is_judged else None,
    )
