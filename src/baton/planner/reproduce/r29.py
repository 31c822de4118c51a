"""Which side wins depends on both targets: colocated if TTFT is tight, split if TPOT is tight."""

import msgspec
import numpy as np

from baton.goodput.interval import Estimate
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.hardware.parallel import Parallel
from baton.planner.goodput.attained import Rule, attain
from baton.planner.goodput.draws import Draws, draw
from baton.planner.placement.deployments import free_topology, mixed_pool, split
from baton.planner.placement.packing import Instances, pack_free
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.distserve import SERVING, space_of, testbed
from baton.planner.reproduce.lengths import SUMMARIES
from baton.planner.reproduce.row import SHAPE, Row, fact_row
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import pack
from baton.workload.load import load_trace

MODEL, NUM_GPUS, NUM_PREFILL = "Qwen2.5-14B", 8, 5
RATE_PER_S, NUM_REQUESTS = 12.0, 1500
TTFT_MS = (400, 500, 700, 1000, 1500, 2000, 4000, 6000)
TPOT_MS = (20, 25, 30, 35, 40, 45, 50, 70, 100, 150)
BUDGETS = (2048, 1024, 512, 256)
"""Of colocated Sarathi-Serve; the first is vLLM's."""
SPLIT = "split"


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of targets at which one side's joint attainment is higher for certain."""

    side: str
    cells: tuple[tuple[int, int], ...]
    largest: float
    """Difference of attainments, and where."""
    at: tuple[int, int]


def _deployments(context: Context) -> dict[str, Deployment]:
    space = space_of(
        context, MODEL, testbed(1, NUM_GPUS), predictor="roofline", parallels=[Parallel()]
    )
    one = space.candidates[0]
    groups = (
        Instances(letter="p", parallel=Parallel(), num=NUM_PREFILL),
        Instances(letter="d", parallel=Parallel(), num=NUM_GPUS - NUM_PREFILL),
    )
    packing = pack_free(groups, 1, NUM_GPUS)
    links = free_topology(space.cluster, packing, *groups, space.serving.latency_us)
    pools = {
        str(budget): mixed_pool(one, SERVING, NUM_GPUS, max_batch_tokens=budget)
        for budget in BUDGETS
    }
    return pools | {
        SPLIT: split(space, one, NUM_PREFILL, one, NUM_GPUS - NUM_PREFILL, links, BUDGETS[0])
    }


def _run(context: Context) -> list[Row]:
    trace = pack(load_trace(context.file(SUMMARIES)))
    deployments = _deployments(context)
    results: dict[str, list[FastResult]] = {name: [] for name in deployments}
    for seed in context.seeds:
        context.say(f"seed {seed}")
        requests = draw(trace, NUM_REQUESTS, seed, Draws()).at_rate(RATE_PER_S)
        for name, deployment in deployments.items():
            results[name].append(simulate_fast(deployment, requests))
    conditions = (
        f"{MODEL} on {NUM_GPUS} A100 by a roofline, arXiv summaries at {RATE_PER_S:g}/s, split "
        f"{NUM_PREFILL}P+{NUM_GPUS - NUM_PREFILL}D; joint attainment, higher for certain over the "
        "seeds"
    )
    fixed = [
        _row(region, context, f"{conditions}; colocated Sarathi-Serve with budget {BUDGETS[0]}")
        for region in _regions(results, BUDGETS[:1])
    ]
    tuned = [
        _row(
            region,
            context,
            f"colocated with the best of the budgets {BUDGETS} in each cell: a roofline lets small "
            "chunks cost nothing, so this is the most that colocated can do",
            is_judged=False,
        )
        for region in _regions(results, BUDGETS)
    ]
    return [*fixed, *tuned]


def _regions(results: dict[str, list[FastResult]], budgets: tuple[int, ...]) -> list[Region]:
    wins: dict[str, dict[tuple[int, int], float]] = {"colocated": {}, SPLIT: {}}
    for ttft_ms in TTFT_MS:
        for tpot_ms in TPOT_MS:
            difference = _difference(results, budgets, ttft_ms, tpot_ms)
            if difference.low > 0:
                wins[SPLIT][ttft_ms, tpot_ms] = difference.value
            elif difference.high < 0:
                wins["colocated"][ttft_ms, tpot_ms] = -difference.value
    return [
        Region(
            side=side,
            cells=tuple(cells),
            largest=max(cells.values(), default=0.0),
            at=max(cells, key=lambda cell: cells[cell], default=(0, 0)),
        )
        for side, cells in wins.items()
    ]


def _difference(
    results: dict[str, list[FastResult]], budgets: tuple[int, ...], ttft_ms: int, tpot_ms: int
) -> Estimate:
    targets = SLOTargets(ttft_us=ttft_ms * 1000, tpot_us=tpot_ms * 1000)
    joint = {
        name: np.array([attain(one, targets, Rule()).joint for one in runs])
        for name, runs in results.items()
    }
    best = max(map(str, budgets), key=lambda name: float(joint[name].mean()))
    return student_mean((joint[SPLIT] - joint[best]).tolist())


def _row(region: Region, context: Context, why: str, *, is_judged: bool = True) -> Row:
    wanted = "tight TTFT, loose TPOT" if region.side == "colocated" else "loose TTFT, tight TPOT"
    where = f"most at {region.at[0]}/{region.at[1]} ms, by {region.largest:.2f}; "
    return fact_row(
        "r29",
        f"pairs of targets at which {region.side} attains more",
        target=f"there are some ({wanted})",
        measured=f"{len(region.cells)} of {len(TTFT_MS) * len(TPOT_MS)}",
        met=bool(region.cells) if is_judged else None,
        tolerance="at least one" if is_judged else "-",
        interval=(where if region.cells else "") + f"n = {len(context.seeds)}",
        why=why,
        kind=SHAPE,
    )


REPRODUCTION = Reproduction(
    target_id="r29",
    title="TaiChi: neither side dominates",
    source="TaiChi, sweep of both targets",
    run=_run,
    files=(SUMMARIES,),
)
