"""Where nothing meets the targets at any rate: the plan that comes closest to them."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from baton.planner.goodput.draws import draw, resampling
from baton.planner.goodput.find import search
from baton.planner.placement.arms import SplitBuild, colocated_arm
from baton.planner.placement.ask import Ask
from baton.planner.placement.deployments import mixed_pool
from baton.planner.placement.found import HIGH_AFFINITY, Arm
from baton.planner.placement.packing import CannotPlace, Instances, Packing, pack_free
from baton.planner.placement.phases import PhaseCandidate, PhasePlan
from baton.planner.placement.space import Candidate, Space
from baton.planner.placement.split_search import request_nbytes
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

POLICY, BUDGET = "sarathi_serve", 2048
NOMINAL_PER_S = 1.0
"""Of a phase that serves nothing: plans need a rate, and none is claimed."""
ALONE_PER_S = 1e-5
"""Requests hours apart: nobody waits for anybody."""
NUM_ALONE = 150


def closest_colocated(space: Space, workload: FastWorkload, ask: Ask) -> Arm | None:
    """Of every cut, replicated over the cluster, the nearest to both targets."""
    found = []
    for candidate in space.candidates:
        num = space.cluster.num_gpus // candidate.gpus
        packing = _packed(space, Instances(letter="m", parallel=candidate.parallel, num=num))
        if packing is not None:
            pool = mixed_pool(
                candidate, space.serving, num, batch_policy=POLICY, max_batch_tokens=BUDGET
            )
            found.append((distance(pool, workload, ask), candidate, pool, packing))
    if not found:
        return None
    _, candidate, pool, packing = min(found, key=lambda one: (one[0], one[1].gpus))
    answer = search(pool, workload, ask.ranking())
    return colocated_arm(space, candidate.parallel, pool, answer, packing, 0.0)


def closest_split(space: Space, workload: FastWorkload, ask: Ask) -> Arm | None:
    """Of every pair of cuts that fits, one instance each, the nearest to both targets."""
    found = [
        (distance(build.deployment(), workload, ask), build.plan.num_gpus, at, build)
        for at, build in enumerate(_pairs(space, workload))
    ]
    if not found:
        return None
    build = min(found)[3]
    deployment = build.deployment()
    return build.arm(deployment, search(deployment, workload, ask.ranking()))


def distance(deployment: Deployment, workload: FastWorkload, ask: Ask) -> float:
    """How many times its target the worse clock takes, at the share that is asked for."""
    draws = ask.draws or resampling(workload)
    num = NUM_ALONE if draws.resamples else min(NUM_ALONE, len(workload))
    alone = draw(workload, num, ask.seeds[0], draws).at_rate(ALONE_PER_S)
    result = simulate_fast(deployment, alone)
    times = ((result.ttft_us, ask.targets.ttft_us), (result.tpot_us, ask.targets.tpot_us))
    unserved = ~result.is_completed
    ratios = [
        _quantile(np.where(unserved, np.inf, np.nan_to_num(us, nan=0.0)), ask.targets.attainment)
        / target
        for us, target in times
        if target is not None
    ]
    return max(ratios)


def _quantile(times_us: NDArray[np.float64], share: float) -> float:
    """What so many stay within: who is not served stays within nothing."""
    return float(np.sort(times_us)[max(1, math.ceil(share * len(times_us) - 1e-9)) - 1])


def _pairs(space: Space, workload: FastWorkload) -> Iterator[SplitBuild]:
    for prefill in space.candidates:
        for decode in space.candidates:
            packing = _packed(
                space,
                Instances(letter="p", parallel=prefill.parallel, num=1),
                Instances(letter="d", parallel=decode.parallel, num=1),
            )
            if packing is not None:
                yield SplitBuild(
                    kind=HIGH_AFFINITY,
                    space=space,
                    plan=PhasePlan(
                        prefill=_nominal(prefill, space.serving.prefill_batches[0]),
                        num_prefill=1,
                        decode=_nominal(decode, 0),
                        num_decode=1,
                    ),
                    packing=packing,
                    request_nbytes=request_nbytes(space, workload),
                )


def _nominal(candidate: Candidate, max_batch_tokens: int) -> PhaseCandidate:
    return PhaseCandidate(
        parallel=candidate.parallel,
        goodput_per_s=NOMINAL_PER_S,
        max_batch_tokens=max_batch_tokens,
    )


def _packed(space: Space, *groups: Instances) -> Packing | None:
    if min(group.num for group in groups) < 1:
        return None
    try:
        return pack_free(groups, space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
