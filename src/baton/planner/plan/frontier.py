"""The best of each kind on fewer GPUs: what one more GPU buys."""

from collections.abc import Callable, Sequence

from baton.planner.goodput.find import search
from baton.planner.placement.arms import SplitBuild
from baton.planner.placement.ask import Ask
from baton.planner.placement.deployments import mixed_pool
from baton.planner.placement.found import COLOCATED, HIGH_AFFINITY, Arm
from baton.planner.placement.packing import CannotPlace, Instances, pack_free
from baton.planner.placement.phases import PhasePlan, plans_for_gpus
from baton.planner.placement.space import Space
from baton.planner.placement.split_search import Phases, request_nbytes
from baton.planner.plan.result import FrontierPoint
from baton.sim.fast.workload import FastWorkload

NUM_SIZES = 4
"""Sizes below the whole cluster that are simulated."""


def sizes(least: int, most: int) -> list[int]:
    """Evenly spread numbers of GPUs, the whole cluster left out: that one is searched anyway."""
    if least >= most:
        return []
    step = max(1, -(-(most - least) // NUM_SIZES))
    return list(range(least, most, step))


def frontier(
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    *,
    colocated: Sequence[Arm],
    split: Arm | None,
    phases: Phases,
    price_per_hour: float | None,
    say: Callable[[str], None],
) -> tuple[FrontierPoint, ...]:
    """Both kinds; the largest size is what the searches found."""
    least = min(one.gpus for one in space.candidates)
    found: list[FrontierPoint] = []
    for gpus in sizes(least, space.cluster.num_gpus):
        say(f"{gpus} GPUs")
        point = _colocated_on(gpus, space, workload, ask, colocated, price_per_hour)
        found += [point] if point else []
        other = _split_on(gpus, space, workload, ask, phases, price_per_hour)
        found += [other] if other else []
    for name, arm in (("colocated", next(iter(colocated), None)), ("split", split)):
        if arm is not None and arm.goodput_per_s > 0:
            found.append(_point(name, arm.num_gpus, str(arm), arm, price_per_hour))
    return tuple(found)


def _point(
    name: str, gpus: int, text: str, arm: Arm, price_per_hour: float | None
) -> FrontierPoint:
    return FrontierPoint(
        kind=name,
        text=text.partition(": ")[2],
        gpus=gpus,
        goodput=arm.answer.rate,
        price_per_hour=None if price_per_hour is None else price_per_hour * gpus,
    )


def _colocated_on(
    gpus: int,
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    arms: Sequence[Arm],
    price_per_hour: float | None,
) -> FrontierPoint | None:
    """The cut, policy and budget that did best on all GPUs, of those that fit into these."""
    fitting = [one for one in arms if one.groups[0].parallel.gpus <= gpus]
    if not fitting:
        return None
    group = fitting[0].groups[0]
    num = gpus // group.parallel.gpus
    deployment = mixed_pool(
        space.candidate(group.parallel),
        space.serving,
        num,
        batch_policy=group.batch_policy,
        max_batch_tokens=group.max_batch_tokens,
    )
    answer = search(deployment, workload, ask.ranking())
    if not answer.rate.value > 0:
        return None
    return FrontierPoint(
        kind=COLOCATED,
        text=f"{num} x {group.parallel} {group.batch_policy} {group.max_batch_tokens}",
        gpus=num * group.parallel.gpus,
        goodput=answer.rate,
        price_per_hour=None if price_per_hour is None else price_per_hour * answer.num_gpus,
    )


def _split_on(
    gpus: int,
    space: Space,
    workload: FastWorkload,
    ask: Ask,
    phases: Phases,
    price_per_hour: float | None,
) -> FrontierPoint | None:
    plans = plans_for_gpus(
        [one.candidate for one in phases.prefill], [one.candidate for one in phases.decode], gpus
    )
    build = next(filter(None, (placed(plan, space, workload) for plan in plans)), None)
    if build is None:
        return None
    answer = search(build.deployment(), workload, ask.ranking())
    if not answer.rate.value > 0:
        return None
    return FrontierPoint(
        kind="split",
        text=str(build.plan),
        gpus=build.plan.num_gpus,
        goodput=answer.rate,
        price_per_hour=None if price_per_hour is None else price_per_hour * build.plan.num_gpus,
    )


def placed(plan: PhasePlan, space: Space, workload: FastWorkload) -> SplitBuild | None:
    """On the nodes, wherever there is room; None where there is none."""
    groups = (
        Instances(letter="p", parallel=plan.prefill.parallel, num=plan.num_prefill),
        Instances(letter="d", parallel=plan.decode.parallel, num=plan.num_decode),
    )
    try:
        packing = pack_free(groups, space.cluster.num_nodes, space.cluster.gpus_per_node)
    except CannotPlace:
        return None
    return SplitBuild(
        kind=HIGH_AFFINITY,
        space=space,
        plan=plan,
        packing=packing,
        request_nbytes=request_nbytes(space, workload),
    )
