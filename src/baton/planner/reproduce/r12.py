"""Splitwise's robustness: conversation on the clusters that were sized for code."""

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

DESIGNS = {
    "AA": ("55xa100:15xa100", "45xa100:25xa100", 0.0, 5.0),
    "HH": ("35xh100:5xh100", "25xh100:15xh100", 0.0, 5.0),
    "HA": ("35xh100:8xa100", "25xh100:26xa100", 7.0, 15.0),
    "HHcap": ("35xh100:7xh100cap", "25xh100:21xh100cap", 7.0, 15.0),
}
"""Sized for code and for conversation at equal power; the published loss, and what is accepted."""


def _run(context: Context) -> list[Row]:
    return [_row(context, reading, name) for reading in (PUBLISHED, MEASURED) for name in DESIGNS]


def _row(context: Context, reading: str, name: str) -> Row:
    other, own, published, accepted = DESIGNS[name]
    wrong = rate_of(context, "conversation", reading, other)
    right = rate_of(context, "conversation", reading, own)
    losses = [100 * (1 - ratio) for ratio in ratios(wrong, right)]
    return number_row(
        "r12",
        f"{name} sized for code loses on conversation, decode {reading}",
        target=f"{published:g} %",
        measured=losses,
        high=accepted if reading == PUBLISHED else None,
        unit="%",
        why=rates_text(wrong, right),
    )


REPRODUCTION = Reproduction(
    target_id="r12",
    title="Splitwise: the other workload on a cluster",
    source="Splitwise (ISCA'24), Figure 21 and its text; BLOOM-176B",
    run=_run,
    files=FILES,
)
