"""Runs every step that a profile rests on, in short interleaved rounds, into the journal."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from baton.bench.profile.engine_child import EngineChild
from baton.bench.profile.journal import Journal, Sample
from baton.bench.profile.orders import Timed
from baton.bench.profile.shapes import Shape, contention_pairs, fit_grid, held_out

ROUNDS, ROUNDS_QUICK = 5, 3
_TRIES = 3
"""A step that lost its core to another process is run again, as often as this."""
OnStep = Callable[[], None]


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one run measures: equal seeds and rooms give equal plans."""

    fitted: tuple[Shape, ...]
    judged: tuple[Shape, ...]
    pairs: tuple[tuple[Shape, Shape], ...]
    num_rounds: int
    seed: int

    @property
    def num_samples(self) -> int:
        """Timed steps of a whole run."""
        alone = len(self.fitted) + len(self.judged)
        return self.num_rounds * (alone + 2 * len(self.pairs))


def make_plan(child: EngineChild, seed: int, *, quick: bool, paired: bool) -> StepPlan:
    """The plan for what this engine can hold; without a second core nothing is paired."""
    fitted = fit_grid(child.room, quick=quick)
    return StepPlan(
        fitted=tuple(fitted),
        judged=tuple(held_out(child.room, seed, quick=quick, known=fitted)),
        pairs=tuple(contention_pairs(child.room)) if paired else (),
        num_rounds=ROUNDS_QUICK if quick else ROUNDS,
        seed=seed,
    )


def measure_alone(child: EngineChild, plan: StepPlan, journal: Journal, on_step: OnStep) -> None:
    """Every fitted and every judged shape once a round, each round in another order."""
    done = {(s.round, s.shape) for s in journal.samples() if not s.paired}
    judged = set(plan.judged)
    shapes = [*plan.fitted, *plan.judged]
    warm = True
    for number in range(plan.num_rounds):
        order = list(shapes)
        random.Random(plan.seed * 1000 + number).shuffle(order)
        for shape in order:
            if (number, shape) not in done:
                if warm:
                    warm = _warm_up(child, plan)
                timed = _undisturbed(child, shape)
                journal.add(
                    Sample(
                        round=number,
                        shape=shape,
                        held_out=shape in judged,
                        wall_us=timed.wall_us,
                        cpu_us=timed.cpu_us,
                    )
                )
            on_step()


def _warm_up(child: EngineChild, plan: StepPlan) -> bool:
    """The first steps of a process compile and allocate; returns False: it is warm."""
    for shape in (plan.fitted[-1], *plan.judged[:2], *plan.fitted[:3]):
        child.time(shape)
    return False


def _undisturbed(child: EngineChild, shape: Shape) -> Timed:
    """The first run that kept its core, else the one that lost it least."""
    best = child.time(shape)
    for _ in range(_TRIES - 1):
        if best.kept_core:
            break
        best = min(best, child.time(shape), key=lambda timed: timed.wall_us)
    return best


def measure_beside(
    child: EngineChild,
    start_neighbour: Callable[[], AbstractContextManager[EngineChild]],
    plan: StepPlan,
    journal: Journal,
    on_step: OnStep,
) -> None:
    """Each pair alone and then beside its busy neighbour, round by round."""
    done = {(s.round, s.shape, s.beside) for s in journal.samples() if s.paired}
    wanted = [
        (number, shape, work, beside)
        for number in range(plan.num_rounds)
        for shape, work in plan.pairs
        for beside in (None, work)
    ]
    missing = [entry for entry in wanted if (entry[0], entry[1], entry[3]) not in done]
    for _ in range(len(wanted) - len(missing)):
        on_step()
    if not missing:
        return
    with start_neighbour() as neighbour:
        child.time(missing[0][1])
        for number, shape, _, beside in missing:
            if beside is not None:
                neighbour.spin(beside)
            timed = _undisturbed(child, shape)
            neighbour.rest()
            journal.add(
                Sample(
                    round=number,
                    shape=shape,
                    beside=beside,
                    paired=True,
                    wall_us=timed.wall_us,
                    cpu_us=timed.cpu_us,
                )
            )
            on_step()
