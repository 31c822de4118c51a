"""What `baton predict` does."""

import os
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from baton.errors import ConfigError
from baton.planner.predict.coefficients import PHYSICS, read_coefficients, shipped
from baton.planner.predict.errors import error_table, print_errors
from baton.planner.predict.predict import Prediction, measured_times, predict_table
from baton.planner.predict.rows import Table, read_table, write_table


class PredictOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of the verb."""

    rows: Path
    data: Path
    out: Path | None = None
    coefficients: Path | None = None
    is_physics: bool = False


def data_folder(given: Path | None) -> Path:
    """Named, or of the environment. Raises ConfigError if it is neither."""
    name = str(given) if given is not None else os.environ.get("BATON_DATA", "")
    if not name:
        raise ConfigError("no operator tables: name their folder with --data or BATON_DATA")
    if not Path(name).is_dir():
        raise ConfigError(f"{name}: no such folder; it must hold aiconfigurator/<system>/vllm-*/")
    return Path(name)


def predict_command(options: PredictOptions, console: Console, progress: Progress) -> None:
    """Predict, write, and tell the errors where the table is measured."""
    table = read_table(options.rows)
    if not table.rows:
        raise ConfigError(f"{options.rows}: no rows below the header")
    chosen = PHYSICS if options.is_physics else shipped()
    if options.coefficients is not None:
        chosen = read_coefficients(options.coefficients)
    with progress:
        task = progress.add_task("rows", total=len(table.rows))
        found = predict_table(table, options.data, chosen, lambda: progress.advance(task))
    if options.out is not None:
        write_table(options.out, table, cells(found))
        console.print(f"{len(table.rows)} rows to {options.out}", highlight=False)
    num = sum(found.is_extrapolated)
    console.print(
        f"{len(table.rows)} rows, {num} extrapolated; coefficients: {chosen.source}",
        highlight=False,
    )
    for name in ("a quarter left out", "one system left out"):
        if name in chosen.accuracy:
            known = chosen.accuracy[name]
            console.print(
                f"  fitted with {name}: median error of TTFT {known.ttft_median:.1f} % "
                f"(p90 {known.ttft_p90:.1f}), TPOT {known.tpot_median:.1f} % "
                f"(p90 {known.tpot_p90:.1f}) on it",
                highlight=False,
            )
    if table.is_measured:
        ttft, tpot = measured_times(table.rows)
        print_errors("", error_table(table.rows, found.times, ttft, tpot), console)
    elif options.out is None:
        _print_rows(table, found, console)


def cells(found: Prediction) -> list[tuple[str, str, str, str]]:
    """What is written behind each row."""
    return [
        (f"{ttft:.4f}", f"{tpot:.5f}", source, str(is_extrapolated).lower())
        for ttft, tpot, source, is_extrapolated in zip(
            found.times.ttft, found.times.tpot, found.sources, found.is_extrapolated, strict=True
        )
    ]


def _print_rows(table: Table, found: Prediction, console: Console) -> None:
    for row, (ttft, tpot, source, _) in zip(table.rows, cells(found), strict=True):
        name = row.text("id") or f"line {row.line}"
        console.print(f"{name}: TTFT {ttft} ms, TPOT {tpot} ms ({source})", highlight=False)
