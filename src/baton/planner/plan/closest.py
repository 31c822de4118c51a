"""Where nothing meets the targets at any rate: the plan that comes closest to them."""

from collections.abc import Sequence

import msgspec

from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.goodput.find import search
from baton.planner.placement.arms import SplitBuild, colocated_arm
from baton.planner.placement.ask import Ask
from baton.planner.placement.deployments import mixed_pool
from baton.planner.placement.found import HIGH_AFFINITY, Arm
from baton.planner.placement.packing import CannotPlace, Instances, pack_free
from baton.planner.placement.phase_search import PhaseFound
from baton.planner.placement.phases import PhaseCandidate, PhasePlan
from baton.planner.placement.space import Candidate, Space
from baton.planner.placement.split_search import Phases, request_nbytes
from baton.sim.fast.workload import FastWorkload

POLICY, BUDGET = "sarathi_serve", 2048
NOMINAL_PER_S = 1.0
"""Of a phase that serves nothing: plans need a rate, and none is claimed."""


def closest_colocated(space: Space, workload: FastWorkload, ask: Ask) -> Arm | None:
    """Of every cut, replicated over the cluster, the one whose worse clock is met most often."""
    arms = [
        arm
        for candidate in space.candidates
        if (arm := _pool(candidate, space, workload, ask)) is not None
    ]
    return max(arms, key=lambda arm: (nearness(arm.cell), arm.num_gpus), default=None)


def closest_split(space: Space, workload: FastWorkload, ask: Ask, phases: Phases) -> Arm | None:
    """One instance of each phase that comes closest by its own clock, and fits."""
    for prefill in _by_nearness(phases.prefill):
        for decode in _by_nearness(phases.decode):
            arm = _pair(prefill, decode, space, workload, ask)
            if arm is not None:
                return arm
    return None


def nearness(answer: GoodputAnswer) -> float:
    """Share of the requests that meet the clock that fewest meet, at the lowest rate."""
    return min(answer.at_rate.shares.values())


def _pool(candidate: Candidate, space: Space, workload: FastWorkload, ask: Ask) -> Arm | None:
    num = space.cluster.num_gpus // candidate.gpus
    if num < 1:
        return None
    instances = Instances(letter="m", parallel=candidate.parallel, num=num)
    try:
        packing = pack_free((instances,), space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
    deployment = mixed_pool(
        candidate, space.serving, num, batch_policy=POLICY, max_batch_tokens=BUDGET
    )
    answer = search(deployment, workload, ask.ranking())
    return colocated_arm(space, candidate.parallel, deployment, answer, packing, 0.0)


def _by_nearness(found: Sequence[PhaseFound]) -> list[PhaseCandidate]:
    ranked = sorted(found, key=lambda one: (-nearness(one.answer), one.candidate.parallel.gpus))
    return [msgspec.structs.replace(one.candidate, goodput_per_s=NOMINAL_PER_S) for one in ranked]


def _pair(
    prefill: PhaseCandidate, decode: PhaseCandidate, space: Space, workload: FastWorkload, ask: Ask
) -> Arm | None:
    groups = (
        Instances(letter="p", parallel=prefill.parallel, num=1),
        Instances(letter="d", parallel=decode.parallel, num=1),
    )
    try:
        packing = pack_free(groups, space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
    build = SplitBuild(
        kind=HIGH_AFFINITY,
        space=space,
        plan=PhasePlan(prefill=prefill, num_prefill=1, decode=decode, num_decode=1),
        packing=packing,
        request_nbytes=request_nbytes(space, workload),
    )
    deployment = build.deployment()
    answer = search(deployment, workload, ask.ranking())
    return build.arm(deployment, answer)
