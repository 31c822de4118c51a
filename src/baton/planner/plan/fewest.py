"""The fewest GPUs on which each kind still serves a rate that is asked for."""

import math
from collections.abc import Callable, Iterable

from baton.planner.goodput.attained import attain, summed
from baton.planner.goodput.draws import draw, resampling
from baton.planner.goodput.find import search
from baton.planner.goodput.precision import NUM_GROWTHS, NUM_RESIDENCES
from baton.planner.placement.arms import SplitBuild, colocated_arm
from baton.planner.placement.ask import Ask
from baton.planner.placement.deployments import mixed_pool
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
    """By the contract, over the requests of all seeds, in runs in which a queue would show."""
    draws = ask.draws or resampling(workload)
    num = num_requests_at(rate_per_s, workload, ask)
    results = (
        simulate_fast(deployment, draw(workload, num, seed, draws).at_rate(rate_per_s))
        for seed in ask.seeds
    )
    attained = summed([attain(result, ask.targets, ask.rule) for result in results])
    return ask.contract.share(attained) >= ask.targets.attainment


def num_requests_at(rate_per_s: float, workload: FastWorkload, ask: Ask) -> int:
    """As `needed` counts them for a search, with the targets in place of a pilot's times."""
    if ask.num_requests is not None:
        return ask.num_requests
    wait_s = (ask.targets.ttft_us or 0) / US_PER_S
    tokens = float(workload.num_output.mean())
    residence_s = wait_s + tokens * (ask.targets.tpot_us or 0) / US_PER_S
    lasts_s = max(NUM_RESIDENCES * residence_s, NUM_GROWTHS * wait_s / PRECISION)
    draws = ask.draws or resampling(workload)
    most = ask.most_requests if draws.resamples else min(ask.most_requests, len(workload))
    return min(most, max(LEAST, math.ceil(rate_per_s * lasts_s)))


def fewest_colocated(
    space: Space, workload: FastWorkload, ask: Ask, arms: Iterable[Arm], rate_per_s: float
) -> Arm | None:
    """Of the configurations that did best on all GPUs, each on as few as do."""
    found: tuple[int, ArmGroup, Deployment] | None = None
    groups = [arm.groups[0] for arm in arms if arm.goodput_per_s > 0][:NUM_KINDS]
    for group in groups:
        gpus = group.parallel.gpus
        most = group.num if found is None else min(group.num, (found[0] - 1) // gpus)

        def pool(num: int, group: ArmGroup = group) -> Deployment:
            return mixed_pool(
                space.candidate(group.parallel),
                space.serving,
                num,
                batch_policy=group.batch_policy,
                max_batch_tokens=group.max_batch_tokens,
            )

        num = least_that(most, lambda num: serves_rate(pool(num), workload, ask, rate_per_s))
        if num is not None:
            found = (num * gpus, group, pool(num))
    if found is None:
        return None
    num_gpus, group, deployment = found
    instances = Instances(letter="m", parallel=group.parallel, num=num_gpus // group.parallel.gpus)
    packing = _packed(space, instances)
    if packing is None:
        return None
    answer = search(deployment, workload, ask.ranking())
    return colocated_arm(space, group.parallel, deployment, answer, packing, answer.rate.value)


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


def _packed(space: Space, instances: Instances) -> Packing | None:
    try:
        return pack_free((instances,), space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
