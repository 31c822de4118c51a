"""Splitwise, equal power: 45 prompt and 25 token A100s against 70 that run both phases."""

from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, number_row
from baton.planner.reproduce.splitwise import (
    FILES,
    MEASURED,
    PUBLISHED,
    rate_of,
    rates_text,
    ratios,
)

BASE, SPLIT = "70xa100", "45xa100:25xa100"
TARGET, TOLERANCE = 2.15, 0.2


def _run(context: Context) -> list[Row]:
    rows = []
    for reading in (PUBLISHED, MEASURED):
        base = rate_of(context, "conversation", reading, BASE)
        split = rate_of(context, "conversation", reading, SPLIT)
        is_judged = reading == PUBLISHED
        rows.append(
            number_row(
                "r7",
                f"AA (45P, 25T) over 70 A100s, decode {reading}",
                target=f"{TARGET}x",
                measured=ratios(split, base),
                low=TARGET - TOLERANCE if is_judged else None,
                high=TARGET + TOLERANCE if is_judged else None,
                unit="x",
                why=rates_text(base, split),
            )
        )
    return rows


REPRODUCTION = Reproduction(
    target_id="r7",
    title="Splitwise: iso-power, conversation, A100s",
    source="Splitwise (ISCA'24), Figure 18 and its text; BLOOM-176B",
    run=_run,
    files=FILES,
)
