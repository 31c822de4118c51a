"""One cell of a race after another, arms alternated, and what every client saw."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from baton.bench.race.contest import Contest
from baton.bench.race.field import Lane
from baton.bench.race.phases import Phases, read_phases
from baton.goodput.attainment import MISSED, Met, judge_each
from baton.goodput.record import RequestRecord
from baton.goodput.slo import SLOTargets
from baton.workload.request import Workload

_HOPELESS = 0.5
"""An arm that attains less at a rate is not measured at the higher ones: it attains nothing."""
_SETTLE_S = 0.3


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one rate in one repetition."""

    arm: str
    contest: str
    rate: float
    repetition: int
    num_requests: int
    records: tuple[RequestRecord, ...]
    phases: tuple[Phases, ...]
    is_skipped: bool = False
    """Not run, because a lower rate was hopeless; every request counts as a miss."""

    def judged(self, targets: SLOTargets) -> list[Met]:
        """What each request met, in order of arrival; failures and skipped cells met nothing."""
        if self.is_skipped:
            return [MISSED] * self.num_requests
        return judge_each(self.records, targets)

    def met(self, targets: SLOTargets) -> list[bool]:
        """Whether each request met every target."""
        return [one.all for one in self.judged(targets)]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    repetitions: int
    duration_s: float
    seed: int


def cell_seed(schedule: Schedule, repetition: int, number: int) -> int:
    """Of the prompts' tokens: no cell of an arm may share a prefix with another or a warm-up."""
    return schedule.seed + 1000 * (repetition + 1) + number


async def run_contest(
    lanes: Mapping[str, Lane],
    contest: Contest,
    rates: Sequence[float],
    targets: SLOTargets,
    schedule: Schedule,
    say: Callable[[str], None],
) -> list[Cell]:
    """Every arm at every rate, `repetitions` times; a repetition draws new requests for all arms.

    Arms alternate within a rate, in another order each time, so that drift of the machine hits all.
    """
    cells: list[Cell] = []
    for repetition in range(schedule.repetitions):
        hopeless: set[str] = set()
        for number, rate in enumerate(sorted(rates)):
            workload = contest.cell(rate, schedule.duration_s, schedule.seed + repetition)
            names = _rotated(list(lanes), repetition + number)
            for name in names:
                place = f"{contest.name} at {rate:.2f}/s, repetition {repetition + 1}: {name}"
                if name in hopeless:
                    say(f"{place} skipped, hopeless already")
                    cells.append(_skipped(name, contest, rate, repetition, len(workload.requests)))
                    continue
                seed = cell_seed(schedule, repetition, number)
                records, phases = await _run(lanes[name], workload, seed)
                cell = Cell(
                    arm=name,
                    contest=contest.name,
                    rate=rate,
                    repetition=repetition,
                    num_requests=len(workload.requests),
                    records=tuple(records),
                    phases=tuple(phases),
                )
                share = sum(cell.met(targets)) / cell.num_requests
                if share < _HOPELESS:
                    hopeless.add(name)
                say(f"{place} {share:.0%} of {cell.num_requests}")
                cells.append(cell)
    return cells


async def _run(
    lane: Lane, workload: Workload, seed: int
) -> tuple[list[RequestRecord], list[Phases]]:
    since_us = time.monotonic_ns() // 1000
    records = await lane.run(workload, seed)
    await asyncio.sleep(_SETTLE_S)  # the last events reach their files, the machine is idle again
    return records, read_phases(lane.trace_dir, since_us)


def _rotated(names: list[str], by: int) -> list[str]:
    start = by % len(names)
    return names[start:] + names[:start]


def _skipped(arm: str, contest: Contest, rate: float, repetition: int, num: int) -> Cell:
    return Cell(
        arm=arm,
        contest=contest.name,
        rate=rate,
        repetition=repetition,
        num_requests=num,
        records=(),
        phases=(),
        is_skipped=True,
    )
