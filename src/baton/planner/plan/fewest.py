"""The fewest GPUs on which each kind still serves a rate that is asked for."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from baton.hardware.parallel import Parallel
from baton.planner.goodput.attained import attain, summed
from baton.planner.goodput.draws import draw, resampling
from baton.planner.goodput.find import LONGER, search
from baton.planner.goodput.precision import NUM_GROWTHS, NUM_RESIDENCES
from baton.planner.placement.arms import SplitBuild, colocated_arm
from baton.planner.placement.ask import Ask
from baton.planner.placement.colocated_search import Pool
from baton.planner.placement.found import Arm, ArmGroup
from baton.planner.placement.packing import CannotPlace, Instances, Packing, pack_free
from baton.planner.placement.phases import plans_for_gpus
from baton.planner.placement.space import Space
from baton.planner.placement.split_search import Phases
from baton.planner.plan.frontier import placed
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload

PRECISION = 0.02
US_PER_S = 1e6
LEAST = 1000
FAR = 0.2
"""Below the target a single seed's share decides: the others do not make up for so much."""
NUM_KINDS = 4
"""Of the best colocated configurations, and plans of each size, that are tried on fewer GPUs."""


def least_that(most: int, serves: Callable[[int], bool]) -> int | None:
    """Bisection: the least of 1 to `most` that serves, where more never serve less; None if all
    fail."""
    if most < 1 or not serves(most):
        return None
    fails, enough = 0, most
    while enough - fails > 1:
        middle = (fails + enough) // 2
        fails, enough = (fails, middle) if serves(middle) else (middle, enough)
    return enough


def serves_rate(
    deployment: Deployment, workload: FastWorkload, ask: Ask, rate_per_s: float
) -> bool:
    """By the contract, over the requests of all seeds, and still in runs several times as long.

    Close to what a deployment can do a queue shows in the longer ones only.
    """
    longest = num_requests_at(rate_per_s, workload, ask)
    shorter = max(1, longest // LONGER)
    return all(
        _serves_so_many(deployment, workload, ask, rate_per_s, num) for num in (shorter, longest)
    )


def _serves_so_many(
    deployment: Deployment, workload: FastWorkload, ask: Ask, rate_per_s: float, num: int
) -> bool:
    draws = ask.draws or resampling(workload)
    parts = []
    for seed in ask.seeds:
        result = simulate_fast(deployment, draw(workload, num, seed, draws).at_rate(rate_per_s))
        parts.append(attain(result, ask.targets, ask.rule))
        if ask.contract.share(parts[-1]) < ask.targets.attainment - FAR:
            return False
    return ask.contract.share(summed(parts)) >= ask.targets.attainment


def num_requests_at(rate_per_s: float, workload: FastWorkload, ask: Ask) -> int:
    """As `needed` counts them for a search, with the targets in place of a pilot's times, and as
    much more as a search tries to see whether its runs were long enough."""
    if ask.num_requests is not None:
        return ask.num_requests
    wait_s = (ask.targets.ttft_us or 0) / US_PER_S
    tokens = float(workload.num_output.mean())
    residence_s = wait_s + tokens * (ask.targets.tpot_us or 0) / US_PER_S
    lasts_s = max(NUM_RESIDENCES * residence_s, NUM_GROWTHS * wait_s / PRECISION)
    draws = ask.draws or resampling(workload)
    most = ask.most_requests if draws.resamples else min(ask.most_requests, len(workload))
    return min(most, LONGER * max(LEAST, math.ceil(rate_per_s * lasts_s)))


def fewest_colocated(
    space: Space, workload: FastWorkload, ask: Ask, arms: Iterable[Arm], rate_per_s: float
) -> Arm | None:
    """Of every cut, with the batch policies and budgets that did well on all GPUs."""
    found: Pool | None = None
    for pool in _pools(space, [arm.groups[0] for arm in arms if arm.goodput_per_s > 0]):
        gpus = pool.candidate.gpus
        most = pool.num if found is None else (found.num_gpus - 1) // gpus

        def serves(num: int, pool: Pool = pool) -> bool:
            return serves_rate(pool.deployment(space, num), workload, ask, rate_per_s)

        num = least_that(min(most, pool.num), serves)
        if num is not None:
            found = msgspec.structs.replace(pool, num=num)
    if found is None:
        return None
    parallel = found.candidate.parallel
    packing = _packed(space, parallel, found.num)
    assert packing is not None, "more of them had room"
    deployment = found.deployment(space, found.num)
    answer = search(deployment, workload, ask.ranking())
    return colocated_arm(space, parallel, deployment, answer, packing, answer.rate.value)


def _pools(space: Space, best: Sequence[ArmGroup]) -> Iterator[Pool]:
    """The best ones of all GPUs first: they leave the others few counts to try."""
    names = list(dict.fromkeys((one.batch_policy, one.max_batch_tokens) for one in best))
    tried = [(one.parallel, one.batch_policy, one.max_batch_tokens) for one in best[:NUM_KINDS]]
    tried += [
        (candidate.parallel, policy, budget)
        for candidate in space.candidates
        for policy, budget in names[:NUM_KINDS]
    ]
    for parallel, policy, budget in dict.fromkeys(tried):
        candidate = space.candidate(parallel)
        num = space.cluster.num_gpus // candidate.gpus
        packing = _packed(space, parallel, num) if num else None
        if packing is not None:
            yield Pool(
                candidate=candidate,
                num=num,
                batch_policy=policy,
                max_batch_tokens=budget,
                packing=packing,
            )


def fewest_split(
    space: Space, workload: FastWorkload, ask: Ask, phases: Phases, most: int, rate_per_s: float
) -> Arm | None:
    """Of the best counts and cuts of each size."""
    prefill = [one.candidate for one in phases.prefill]
    decode = [one.candidate for one in phases.decode]
    builds: dict[int, SplitBuild | None] = {}

    def serves(gpus: int) -> bool:
        plans = plans_for_gpus(prefill, decode, gpus)[:NUM_KINDS]
        tried = filter(None, (placed(plan, space, workload) for plan in plans))
        builds[gpus] = next(
            (one for one in tried if serves_rate(one.deployment(), workload, ask, rate_per_s)),
            None,
        )
        return builds[gpus] is not None

    gpus = least_that(most, serves)
    build = builds[gpus] if gpus is not None else None
    if build is None:
        return None
    deployment = build.deployment()
    return build.arm(deployment, search(deployment, workload, ask.ranking()))


def _packed(space: Space, parallel: Parallel, num: int) -> Packing | None:
    instances = Instances(letter="m", parallel=parallel, num=num)
    try:
        return pack_free((instances,), space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
