"""Many seeds over several processes, summed up."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice

import msgspec
from msgspec.structs import replace

from baton.errors import ConfigError
from baton.signals import end_with_parent
from baton.sim.draw import draw_plan
from baton.sim.vopr import Outcome, run_plan

_CHUNK = 20
_MAX_FAILING = 5
_MAX_JOBS = 256
"""More is a slip of the finger: nobody has so many cores for this."""
_LOOK_S = 0.2


class Tally(msgspec.Struct, kw_only=True):
    """Sums over seeds; `failing` holds the first few that broke an invariant."""

    num_seeds: int = 0
    num_failing: int = 0
    num_events: int = 0
    num_requests: int = 0
    virtual_us: int = 0
    ends: Counter[str] = msgspec.field(default_factory=Counter)
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    marks: Counter[str] = msgspec.field(default_factory=Counter)
    """In how many seeds a named outcome occurred."""
    checkers: Counter[str] = msgspec.field(default_factory=Counter)
    failing: list[Outcome] = msgspec.field(default_factory=list)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    num_jobs: int = 0

    def add(self, outcome: Outcome) -> None:
        """Book one run."""
        self.num_seeds += 1
        self.num_events += outcome.num_events
        self.virtual_us += outcome.virtual_us
        self.num_requests += sum(outcome.ends.values())
        self.ends.update(outcome.ends)
        self.faults.update(outcome.faults)
        self.marks.update(name for name, count in outcome.marks.items() if count)
        if not outcome.clean:
            self.num_failing += 1
            self.checkers[outcome.checker] += 1
            if len(self.failing) < _MAX_FAILING:
                self.failing.append(outcome)

    @property
    def seeds_per_core_minute(self) -> float:
        """Seeds per minute of processor time."""
        return 60 * self.num_seeds / self.cpu_s if self.cpu_s else 0.0


def run_seeds(seeds: list[int]) -> tuple[list[Outcome], float]:
    """Run some seeds in this process; also says how much processor time they took."""
    began = time.process_time()
    outcomes = [run_plan(draw_plan(seed)) for seed in seeds]
    # What happened to whom matters for a failing seed only, and the list may be long.
    slim = [replace(outcome, applied=()) if outcome.clean else outcome for outcome in outcomes]
    return slim, time.process_time() - began


def campaign(
    start: int,
    num_seeds: int | None,
    *,
    seconds: float | None = None,
    jobs: int = 0,
    progress: Callable[[Tally], None] = lambda tally: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Tally:
    """Run `num_seeds` seeds from `start`, or as many as fit into `seconds`, but some in any case.

    Stops early after a few failing seeds, since more of the same tell nothing, and when `stopping`
    says so: then what runs is brought to its end and counts.
    """
    tally, began = Tally(num_jobs=useful_jobs(jobs, num_seeds)), time.monotonic()
    chunks = _chunks(start, num_seeds)
    with ProcessPoolExecutor(
        max_workers=tally.num_jobs, initializer=end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        running: set[Future[tuple[list[Outcome], float]]] = set()
        num_given = 0
        while True:
            stopped = stopping()
            late = seconds is not None and time.monotonic() - began > seconds and num_given > 0
            if stopped:
                running = {future for future in running if not future.cancel()}
            elif not late and len(tally.failing) < _MAX_FAILING:
                for chunk in islice(chunks, 2 * tally.num_jobs - len(running)):
                    running.add(pool.submit(run_seeds, chunk))
                    num_given += 1
            if not running:
                break
            done, running = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            for future in done:
                outcomes, cpu_s = future.result()
                tally.cpu_s += cpu_s
                for outcome in outcomes:
                    tally.add(outcome)
            tally.elapsed_s = time.monotonic() - began
            progress(tally)
    return tally


def useful_jobs(asked: int, num_seeds: int | None) -> int:
    """So many processes as were asked for (0: one per core), while they have a core and work.

    Raises ConfigError when the number cannot be meant.
    """
    if not 0 <= asked <= _MAX_JOBS:
        raise ConfigError(f"--jobs is {asked}; use 1 to {_MAX_JOBS}, or 0 for one per core")
    cores = len(os.sched_getaffinity(0))
    jobs = min(asked or cores, 2 * cores)
    return jobs if num_seeds is None else max(1, min(jobs, -(-num_seeds // _CHUNK)))


def _chunks(start: int, num_seeds: int | None) -> Iterator[list[int]]:
    end = None if num_seeds is None else start + num_seeds
    for first in count(start, _CHUNK):
        if end is not None and first >= end:
            return
        last = first + _CHUNK if end is None else min(first + _CHUNK, end)
        yield list(range(first, last))
