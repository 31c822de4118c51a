"""DistServe's Algorithm 1 as it is written: replicas for a given rate, or why they do not fit."""

from baton.errors import ConfigError
from baton.planner.goodput.find import search
from baton.planner.placement.arms import SplitBuild
from baton.planner.placement.ask import Ask
from baton.planner.placement.found import HIGH_AFFINITY, Arm
from baton.planner.placement.packing import CannotPlace
from baton.planner.placement.phases import plan_for_rate
from baton.planner.placement.space import Space
from baton.planner.placement.split_search import Phases, pack_plan, request_nbytes
from baton.sim.fast.workload import FastWorkload


def place_for_rate(
    space: Space, workload: FastWorkload, ask: Ask, phases: Phases, target_per_s: float
) -> Arm:
    """Each phase by goodput per GPU, as many replicas as the rate needs, simulated as a whole.

    Raises CannotPlace if these GPUs do not hold them, or a link does not carry the rate's K/V: such
    a plan fits numerically and is none. The goodput that is found may still be below the rate,
    for phases that meet their clocks apart need not meet them together.
    """
    plan = plan_for_rate(
        [one.candidate for one in phases.prefill],
        [one.candidate for one in phases.decode],
        target_per_s,
    )
    if plan is None:
        raise ConfigError(
            f"no split for {target_per_s:g}/s: one phase meets {ask.targets} at no rate"
        )
    build = SplitBuild(
        kind=HIGH_AFFINITY,
        space=space,
        plan=plan,
        packing=pack_plan(space, plan),
        request_nbytes=request_nbytes(space, workload),
    )
    full = [one for one in build.loads(target_per_s) if not one.is_feasible]
    if full:
        raise CannotPlace(
            f"{plan} for {target_per_s:g}/s: " + "; ".join(map(str, full)) + "; keep stages of "
            "both phases on one node, or use faster links"
        )
    deployment = build.deployment()
    return build.arm(deployment, search(deployment, workload, ask.final))
