"""How far predicted times are from measured ones, by kind of deployment and by system."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from baton.hardware.operators.columns import Floats
from baton.planner.predict.closed_loop import LoopTimes
from baton.planner.predict.coefficients import Accuracy
from baton.planner.predict.rows import Row

Mask = np.ndarray


def accuracy(times: LoopTimes, ttft: Floats, tpot: Floats, chosen: Mask) -> Accuracy:
    """Median and p90 of absolute percentage errors over the chosen rows, measured and predicted."""
    chosen = chosen & np.isfinite(ttft) & np.isfinite(tpot)
    chosen = chosen & np.isfinite(times.ttft) & np.isfinite(times.tpot)
    first, other = (
        np.abs(predicted[chosen] / measured[chosen] - 1.0) * 100.0
        for predicted, measured in ((times.ttft, ttft), (times.tpot, tpot))
    )
    if not chosen.any():
        return Accuracy(num_rows=0, ttft_median=0, ttft_p90=0, tpot_median=0, tpot_p90=0)
    return Accuracy(
        num_rows=int(chosen.sum()),
        ttft_median=float(np.median(first)),
        ttft_p90=float(np.percentile(first, 90)),
        tpot_median=float(np.median(other)),
        tpot_p90=float(np.percentile(other, 90)),
    )


def groups(rows: list[Row]) -> Iterator[tuple[str, Mask]]:
    """All, by mode, and by system."""
    yield "all", np.ones(len(rows), bool)
    mode = np.array([row.text("mode") for row in rows])
    given = np.array([row.text("decode_num_workers") != "" for row in rows])
    split = mode == "disagg"
    yield "aggregated", ~split
    yield "disaggregated", split
    if (split & given).any() and (split & ~given).any():
        yield "  worker counts given", split & given
        yield "  worker counts missing", split & ~given
    systems = np.array([row.text("system") for row in rows])
    for name in sorted(set(systems)):
        yield name, systems == name
        for label, chosen in (("aggregated", ~split), ("disaggregated", split)):
            part = (systems == name) & chosen
            if part.any() and not part.all():
                yield f"  {label}", part


def error_table(
    rows: list[Row], times: LoopTimes, ttft: Floats, tpot: Floats
) -> list[tuple[str, Accuracy]]:
    """Groups with at least one measured row."""
    found = [(name, accuracy(times, ttft, tpot, chosen)) for name, chosen in groups(rows)]
    return [(name, one) for name, one in found if one.num_rows]


def print_errors(title: str, found: list[tuple[str, Accuracy]], console: Console) -> None:
    """As a table, in percent."""
    grid = Grid(title=title, title_justify="left", box=None, pad_edge=False)
    grid.add_column("absolute error, %")
    for name in ("rows", "TTFT median", "p90", "TPOT median", "p90"):
        grid.add_column(name, justify="right")
    for name, one in found:
        values = (one.ttft_median, one.ttft_p90, one.tpot_median, one.tpot_p90)
        grid.add_row(name, str(one.num_rows), *(f"{value:.1f}" for value in values))
    console.print(grid)
