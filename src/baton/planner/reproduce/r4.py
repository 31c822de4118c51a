"""DistServe's simulator on its own example: OPT-13B on four GPUs."""

from baton.goodput.slo import SLOTargets
from baton.planner.placement.found import Arm
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.distserve import (
    FITS,
    Plan,
    pair_search,
    plan,
    space_of,
    table_cuts,
    testbed,
)
from baton.planner.reproduce.lengths import SHAREGPT, sharegpt
from baton.planner.reproduce.row import Row, fact_row, number_row

TARGETS = SLOTargets(ttft_us=200_000, tpot_us=100_000)
PUBLISHED = plan((2, 1), (1, 1))
PUBLISHED_RATE, STEP = 1.5625, 0.16


def plan_of(arm: Arm) -> Plan:
    """The cuts of a pair."""
    return Plan(prefill=arm.groups[0].parallel, decode=arm.groups[1].parallel)


def _run(context: Context) -> list[Row]:
    cluster = testbed(1, 4)
    space = space_of(context, "opt-13b", cluster, parallels=table_cuts(cluster))
    workload = sharegpt(context)
    found = pair_search(space, workload, TARGETS, context)
    best = found.arms[0]
    published = next((one for one in found.arms if plan_of(one) == PUBLISHED), None)
    rates = "; ".join(
        f"{plan_of(one)}: {one.per_gpu:.3g}/s per GPU{'' if one.is_refined else ' (short runs)'}"
        for one in found.arms[:4]
    )
    rows = [
        fact_row(
            "r4",
            "best pair (TP,PP of prefill + of decode)",
            target=str(PUBLISHED),
            measured=str(plan_of(best)),
            met=plan_of(best) == PUBLISHED,
            interval=f"{len(context.seeds)} seeds: {rates}",
            why=f"{workload.source}; P90 of each clock; {found.searched.statement}",
        )
    ]
    if published is not None:
        rows.append(
            number_row(
                "r4",
                "goodput per GPU of the published pair",
                target="1.56/s",
                measured=published.answer.per_gpu,
                low=PUBLISHED_RATE - STEP,
                high=PUBLISHED_RATE + STEP,
                tolerance="+- 0.16 (one step of its grid)",
                unit="/s",
                why="its simulator has no transfer, no bound on decode memory, 300 requests and "
                "one seed; ours has all of them",
            )
        )
    return rows


REPRODUCTION = Reproduction(
    target_id="r4",
    title="DistServe: its simulator's example",
    source="DistServe repository, simulator README",
    run=_run,
    files=(*FITS, SHAREGPT),
)
