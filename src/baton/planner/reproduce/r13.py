"""Splitwise without latency targets: what a saturated cluster completes for its cost."""

from statistics import fmean

from baton.planner.provision.fleet import parse_fleet
from baton.planner.provision.probe import side_by_side
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, number_row
from baton.planner.reproduce.splitwise import FILES, MEASURED, PUBLISHED, told

OFFERED = 180.0
"""What the authors offered: more than any of the clusters completes."""
BATCH_S = 240.0
PAIRS = (("AA", "51xa100:35xa100", "86xa100", 0.89), ("HH", "25xh100:15xh100", "40xh100", 0.75))
TOLERANCE = 0.05
GPUS = 8


def _run(context: Context) -> list[Row]:
    return [_row(context, reading, *pair) for reading in (PUBLISHED, MEASURED) for pair in PAIRS]


def _row(context: Context, reading: str, name: str, split: str, base: str, published: float) -> Row:
    prober = told(context, "conversation", reading, BATCH_S)

    def per_cost(fleet: str, seed: int) -> float:
        one = parse_fleet(fleet)
        found = prober.probe(one, OFFERED, seed).completed_per_s
        # The paper's unit: the price of one GPU for each machine.
        return found / (prober.service.cost(one) / GPUS)

    ours = side_by_side(lambda seed: per_cost(split, seed), context.seeds)
    others = side_by_side(lambda seed: per_cost(base, seed), context.seeds)
    is_judged = reading == PUBLISHED
    return number_row(
        "r13",
        f"{name} over its baseline in RPS/$, decode {reading}",
        target=f"1 ({published} both)",
        measured=[one / other for one, other in zip(ours, others, strict=True)],
        low=1 - TOLERANCE if is_judged else None,
        high=1 + TOLERANCE if is_judged else None,
        why=f"{split} {fmean(ours):.3g}, {base} {fmean(others):.3g} RPS/$ with {OFFERED:g}/s "
        "offered; by the price of a GPU hour for each machine",
    )


REPRODUCTION = Reproduction(
    target_id="r13",
    title="Splitwise: batch jobs without targets",
    source="Splitwise (ISCA'24), section on batch jobs; BLOOM-176B, iso-cost clusters",
    run=_run,
    files=FILES,
)
