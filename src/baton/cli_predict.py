"""`baton predict`: times of deployments from operator tables."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from baton.cli_common import check_writable, console_for

_PIPE_COLUMNS = 120


def predict(
    rows: Annotated[Path, typer.Option(help="CSV of deployments, gzipped or plain")],
    data: Annotated[Path | None, typer.Option(help="folder of operator tables; BATON_DATA")] = None,
    out: Annotated[Path | None, typer.Option(help="write the rows and predictions here")] = None,
    coefficients: Annotated[
        Path | None, typer.Option(help="of python -m baton.planner.predict.fit; else the shipped")
    ] = None,
    physics: Annotated[
        bool, typer.Option("--physics", help="operator times alone, nothing fitted")
    ] = False,
) -> None:
    """Predict TTFT and TPOT of deployments; with measured columns, print the errors."""
    from rich.progress import Progress

    from baton.planner.predict.command import PredictOptions, data_folder, predict_command

    check_writable(out, "--out")
    console = console_for(_PIPE_COLUMNS)
    options = PredictOptions(
        rows=rows,
        data=data_folder(data),
        out=out,
        coefficients=coefficients,
        is_physics=physics,
    )
    predict_command(options, console, Progress(console=Console(stderr=True), transient=True))


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("predict")(predict)
