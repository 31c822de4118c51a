"""The best colocated and the best split deployment on a cluster, and how they compare."""

from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.goodput.interval import Estimate
from baton.goodput.student import student_mean
from baton.planner.placement.ask import POLICIES, Ask, Objective, Say, silent
from baton.planner.placement.colocated_search import search_colocated
from baton.planner.placement.found import Arm, ArmSearch
from baton.planner.placement.space import Space
from baton.planner.placement.split_search import (
    search_high_affinity,
    search_low_affinity,
    search_phases,
)
from baton.sim.fast.workload import FastWorkload


class PlacementFound(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of the question whether to split."""

    ask: Ask
    space: Space
    colocated: ArmSearch
    high_affinity: ArmSearch
    low_affinity: ArmSearch | None
    """None on one node, where it is the same as the other."""

    @property
    def splits(self) -> tuple[Arm, ...]:
        """Of both algorithms, best first."""
        found = [*self.high_affinity.arms, *(self.low_affinity.arms if self.low_affinity else ())]
        return tuple(sorted(found, key=lambda one: (not one.is_refined, -self._worth(one))))

    @property
    def best_split(self) -> Arm | None:
        """None when no split meets the targets at any rate."""
        return self.splits[0] if self.splits and self._worth(self.splits[0]) > 0 else None

    @property
    def best_colocated(self) -> Arm | None:
        """None when no pool meets the targets at any rate."""
        return self.colocated.best

    def _worth(self, arm: Arm) -> float:
        return self.ask.value(arm.goodput_per_s, arm.num_gpus)


def find_placement(
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    *,
    policies: Sequence[str] = POLICIES,
    say: Say = silent,
) -> PlacementFound:
    """Search colocated pools, and splits by both algorithms."""
    has_nodes = space.cluster.num_nodes > 1
    if space.cluster.num_gpus < 2 * min(one.gpus for one in space.candidates):
        least = min(one.gpus for one in space.candidates)
        raise ConfigError(
            f"{space.cluster} hold one instance of {least} GPUs and no second one: a split needs "
            f"at least {2 * least} GPUs"
        )
    phases = search_phases(space, workload, ask, prunes=not has_nodes, say=say)
    return PlacementFound(
        ask=ask,
        space=space,
        colocated=search_colocated(space, workload, ask, policies=policies, say=say),
        high_affinity=search_high_affinity(space, workload, ask, phases, say),
        low_affinity=search_low_affinity(space, workload, ask, phases, say=say)
        if has_nodes
        else None,
    )


def paired_ratio(above: Arm, below: Arm, objective: Objective = Objective.TOTAL) -> Estimate:
    """Goodput of one arm over another's: both saw each seed's requests, so seeds are paired."""
    first, second = _by_seed(above, objective), _by_seed(below, objective)
    if first.keys() != second.keys():
        raise ConfigError(f"{above} and {below} were not simulated with the same seeds")
    return student_mean([first[seed] / second[seed] for seed in first])


def _by_seed(arm: Arm, objective: Objective) -> dict[int, float]:
    per = arm.num_gpus if objective is Objective.PER_GPU else 1
    return {one.seed: one.rate_per_s * arm.num_cells / per for one in arm.cell.seeds}
