"""Splitwise, equal cost: 51 prompt and 35 token A100s against 40 H100s that run both phases."""

from baton.planner.provision.fleet import Fleet, split_fleet
from baton.planner.provision.iso import best_split
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, number_row
from baton.planner.reproduce.splitwise import (
    FILES,
    GRID,
    MEASURED,
    PUBLISHED,
    SCOUT_S,
    rate_of,
    rates_text,
    ratios,
    told,
)

BASE, SPLIT, NUM = "40xh100", "51xa100:35xa100", 86
TARGET, TOLERANCE = 1.4, 0.25
COARSE = 5


def _run(context: Context) -> list[Row]:
    rows = []
    for reading in (PUBLISHED, MEASURED):
        base = rate_of(context, "conversation", reading, BASE)
        split = rate_of(context, "conversation", reading, SPLIT)
        is_judged = reading == PUBLISHED
        rows.append(
            number_row(
                "r9",
                f"AA (51P, 35T) over 40 H100s, decode {reading}",
                target=f"{TARGET}x",
                measured=ratios(split, base),
                low=TARGET - TOLERANCE if is_judged else None,
                high=TARGET + TOLERANCE if is_judged else None,
                unit="x",
                why=rates_text(base, split),
            )
        )
        rows.append(_retuned(context, reading))
    return rows


def _retuned(context: Context, reading: str) -> Row:
    """The best split of the 86 machines, chosen on short traces and rated on long ones.

    Every fifth one first, then those beside the best of them.
    """
    prober = told(context, "conversation", reading, SCOUT_S)
    coarse = best_split(prober, _splits(range(COARSE, NUM, COARSE)), GRID, context.seeds)
    near = coarse.best.fleet.num_prompt
    beside = range(near - COARSE + 1, near + COARSE)
    chosen = best_split(prober, _splits(beside), GRID, context.seeds)
    base = rate_of(context, "conversation", reading, BASE)
    best = rate_of(context, "conversation", reading, chosen.best.fleet)
    return number_row(
        "r9",
        f"the best split of {NUM} A100s over 40 H100s, decode {reading}",
        target="> 1x",
        measured=ratios(best, base),
        low=1.0 + 1e-9 if reading == PUBLISHED else None,
        unit="x",
        why=f"{rates_text(best)}; every {COARSE}th split, then {chosen.statement()}",
    )


def _splits(counts: range) -> list[Fleet]:
    return [split_fleet("a100", num, "a100", NUM - num) for num in counts if 0 < num < NUM]


REPRODUCTION = Reproduction(
    target_id="r9",
    title="Splitwise: iso-cost, conversation",
    source="Splitwise (ISCA'24), Figure 19 and its text; BLOOM-176B",
    run=_run,
    files=FILES,
)
