"""What `baton predict` does."""

import os
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from baton.errors import ConfigError
from baton.hardware.operators.folder import FOLDER, table_systems
from baton.planner.predict.coefficients import PHYSICS, read_coefficients, shipped
from baton.planner.predict.errors import error_table, print_errors
from baton.planner.predict.predict import Prediction, measured_times, predict_table
from baton.planner.predict.rows import Table, read_table, write_table

MAX_SHOWN = 20
"""Reasons that are printed; the file has all."""


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
    said = f"{'BATON_DATA' if given is None else '--data'} {name}"
    if not os.path.isdir(name):
        raise ConfigError(f"{said}: no such folder; it must hold {FOLDER}/<system>/vllm-*/")
    if not table_systems(Path(name)):
        raise ConfigError(f"{said}: no operator tables; it must hold {FOLDER}/<system>/vllm-*/")
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
    _print_refused(found.refused, len(table.rows), console)
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
    """What is written behind each row: nothing but the reason where it was refused."""
    rows = zip(
        found.times.ttft, found.times.tpot, found.sources, found.is_extrapolated, strict=True
    )
    return [
        ("", "", source, "")
        if place in found.refused
        else (f"{ttft:.4f}", f"{tpot:.5f}", source, str(is_extrapolated).lower())
        for place, (ttft, tpot, source, is_extrapolated) in enumerate(rows)
    ]


def _print_refused(refused: dict[int, str], num_rows: int, console: Console) -> None:
    if not refused:
        return
    console.print(
        f"WARNING: {len(refused)} of {num_rows} rows cannot be predicted and have empty cells:",
        highlight=False,
    )
    for reason in list(refused.values())[:MAX_SHOWN]:
        console.print(f"  {reason}", markup=False, highlight=False, soft_wrap=True)
    if len(refused) > MAX_SHOWN:
        console.print(f"  and {len(refused) - MAX_SHOWN} more; --out names each", highlight=False)


def _print_rows(table: Table, found: Prediction, console: Console) -> None:
    for row, (ttft, tpot, source, _) in zip(table.rows, cells(found), strict=True):
        name = row.text("id") or f"line {row.line}"
        text = f"TTFT {ttft} ms, TPOT {tpot} ms ({source})" if ttft else source
        console.print(f"{name}: {text}", markup=False, highlight=False)
