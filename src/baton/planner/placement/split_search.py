"""The best split: phases by themselves for bounds, then whole deployments best bound first.

High affinity (DistServe's Algorithm 1): any instance anywhere, K/V over whatever link that takes.
Low affinity (Algorithm 2): stage j of both phases on one node, so that K/V never leaves it; both
pipelines have the same segments, a cell of them fits its nodes, and cells are repeated.
"""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role
from baton.planner.goodput.find import search
from baton.planner.placement.arms import SplitBuild, refined
from baton.planner.placement.ask import Ask, Objective, Say, silent
from baton.planner.placement.best_first import Bounded, best_first
from baton.planner.placement.found import (
    HIGH_AFFINITY,
    LOW_AFFINITY,
    Arm,
    ArmSearch,
    Searched,
)
from baton.planner.placement.packing import (
    CannotPlace,
    Instances,
    Packing,
    common_divisors,
    pack_free,
    pack_paired,
)
from baton.planner.placement.phase_search import PhaseFound, best_batches, search_phase
from baton.planner.placement.phases import PhaseCandidate, PhasePlan, plans_for_gpus, replicas
from baton.planner.placement.space import Space
from baton.sim.fast.workload import FastWorkload


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """The goodput of one instance of every candidate, by phase."""

    prefill: tuple[PhaseFound, ...]
    decode: tuple[PhaseFound, ...]

    @property
    def num_simulations(self) -> int:
        """Behind all of them."""
        return sum(one.answer.num_simulations for one in (*self.prefill, *self.decode))


def search_phases(
    space: Space, workload: FastWorkload, ask: Ask, *, prunes: bool, say: Say = silent
) -> Phases:
    """An instance leaves room for one GPU of the other phase at least."""
    most = space.cluster.num_gpus - min(one.gpus for one in space.candidates)
    found = {
        role: best_batches(
            search_phase(space, role, workload, ask, prunes=prunes, max_gpus=most, say=say)
        )
        for role in (Role.PREFILL, Role.DECODE)
    }
    return Phases(prefill=tuple(found[Role.PREFILL]), decode=tuple(found[Role.DECODE]))


def search_high_affinity(
    space: Space, workload: FastWorkload, ask: Ask, phases: Phases, say: Say = silent
) -> ArmSearch:
    """All pairs of cuts, each with its best counts within the cluster's GPUs."""
    plans = plans_for_gpus(
        [one.candidate for one in phases.prefill],
        [one.candidate for one in phases.decode],
        space.cluster.num_gpus,
        ask.value,
    )
    mean_nbytes = request_nbytes(space, workload)
    builds, num_unplaceable = [], 0
    for plan in plans:
        try:
            packing = pack_plan(space, plan)
        except CannotPlace:
            num_unplaceable += 1
            continue
        builds.append(
            SplitBuild(
                kind=HIGH_AFFINITY,
                space=space,
                plan=plan,
                packing=packing,
                request_nbytes=mean_nbytes,
            )
        )
    return _simulated(builds, workload, ask, phases, num_unplaceable, say)


def search_low_affinity(
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    phases: Phases,
    *,
    most_instances: int = 8,
    say: Say = silent,
) -> ArmSearch:
    """All cells that fit, of up to so many instances of each phase, repeated over the cluster.

    With `most_instances` 1 a cell is a pair, as in DistServe.
    """
    mean_nbytes = request_nbytes(space, workload)
    builds, num_unplaceable = [], 0
    for prefill in phases.prefill:
        for decode in phases.decode:
            if not prefill.bound_per_s > 0 or not decode.bound_per_s > 0:
                continue
            cells = _cells(prefill, decode, space, most_instances)
            if ask.objective is Objective.PER_GPU:
                cells = [(plan, packing, segments, 1) for plan, packing, segments, _ in cells]
            num_unplaceable += not cells
            builds += [
                SplitBuild(
                    kind=LOW_AFFINITY,
                    space=space,
                    plan=plan,
                    packing=packing,
                    request_nbytes=mean_nbytes,
                    num_segments=num_segments,
                    num_cells=num_cells,
                )
                for plan, packing, num_segments, num_cells in cells
            ]
    return _simulated(builds, workload, ask, phases, num_unplaceable, say)


def request_nbytes(space: Space, workload: FastWorkload) -> float:
    """K/V that a mean request hands over, when nothing of it is at the decode instance already."""
    return float(workload.num_prompt.mean()) * space.token_nbytes


def pack_plan(space: Space, plan: PhasePlan) -> Packing:
    """Anywhere on the cluster. Raises CannotPlace."""
    groups = (
        Instances(letter="p", parallel=plan.prefill.parallel, num=plan.num_prefill),
        Instances(letter="d", parallel=plan.decode.parallel, num=plan.num_decode),
    )
    return pack_free(groups, space.cluster.num_nodes, space.cluster.gpus_per_node)


Cell = tuple[PhasePlan, Packing, int, int]
"""A cell's instances, where they stand, its segments, and how many such cells there is room for."""


def _cells(
    prefill: PhaseFound, decode: PhaseFound, space: Space, most_instances: int
) -> list[Cell]:
    """Of one pair of cuts: every ratio of instances that no other one contains."""
    found: list[Cell] = []
    cluster = space.cluster
    first, second = prefill.candidate.parallel, decode.candidate.parallel
    for num_segments in common_divisors(first.pp, second.pp):
        if num_segments > cluster.num_nodes:
            break
        for num_prefill in range(1, most_instances + 1):
            used = num_prefill * first.gpus // num_segments
            num_decode = (cluster.gpus_per_node - used) * num_segments // second.gpus
            num_decode = min(num_decode, most_instances)
            if num_decode < 1:
                break
            plan = _trimmed(prefill, num_prefill, decode, num_decode)
            cell = _placed(plan, space, num_segments)
            if cell is not None:
                found.append(cell)
    return found


def _trimmed(
    prefill: PhaseFound, num_prefill: int, decode: PhaseFound, num_decode: int
) -> PhasePlan:
    """Without decode instances that prefill cannot feed."""
    first, second = _at_bound(prefill), _at_bound(decode)
    needed = replicas(num_prefill * first.goodput_per_s, second.goodput_per_s)
    return PhasePlan(
        prefill=first,
        num_prefill=num_prefill,
        decode=second,
        num_decode=min(num_decode, needed),
    )


def _at_bound(found: PhaseFound) -> PhaseCandidate:
    return msgspec.structs.replace(found.candidate, goodput_per_s=found.bound_per_s)


def _placed(plan: PhasePlan, space: Space, num_segments: int) -> Cell | None:
    cluster = space.cluster
    piece = plan.num_gpus // num_segments
    num_pieces = cluster.num_nodes * (cluster.gpus_per_node // piece)
    num_cells = num_pieces // num_segments
    if num_cells < 1:
        return None
    packing = pack_paired(
        Instances(letter="p", parallel=plan.prefill.parallel, num=plan.num_prefill),
        Instances(letter="d", parallel=plan.decode.parallel, num=plan.num_decode),
        cluster.num_nodes,
        cluster.gpus_per_node,
        num_segments=num_segments,
    )
    return plan, packing, num_segments, num_cells


def _simulated(
    builds: Sequence[SplitBuild],
    workload: FastWorkload,
    ask: Ask,
    phases: Phases,
    num_unplaceable: int,
    say: Say,
) -> ArmSearch:
    def simulate(one: Bounded[SplitBuild], incumbent_per_s: float) -> Arm:
        build = one.plan
        deployment = build.deployment()
        least = incumbent_per_s / build.num_cells
        arm = build.arm(deployment, search(deployment, workload, ask.ranking(), least))
        say(f"{arm}: {arm.answer}")
        return arm

    bounded = [
        Bounded(plan=build, bound_per_s=build.bound_per_s, num_gpus=build.num_gpus)
        for build in builds
    ]
    arms, tally = best_first(bounded, ask, simulate, lambda arm: arm.goodput_per_s)
    ranked = refined(arms, workload, ask, say)
    left = len(builds) - tally.num_simulated - tally.num_pruned
    gap = f"{left} more may be up to {tally.gap:.1%} better" if tally.gap else "none is left"
    return ArmSearch(
        arms=tuple(ranked),
        searched=Searched(
            num_configurations=len(builds) + num_unplaceable,
            num_unplaceable=num_unplaceable,
            num_pruned=tally.num_pruned,
            num_deployments=tally.num_simulated,
            num_simulations=phases.num_simulations
            + sum(one.cell.num_simulations for one in ranked),
            gap=tally.gap,
            statement=(
                f"{len(phases.prefill)} prefill x {len(phases.decode)} decode cuts with their best "
                f"counts: {len(builds)} placed, {num_unplaceable} without a place, "
                f"{tally.num_pruned} dropped because the goodputs of their phases and links, plus "
                f"{ask.slack:.0%}, stay below the best, {tally.num_simulated} simulated as a "
                f"whole; {gap}"
            ),
        ),
    )
