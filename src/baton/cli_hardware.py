"""`baton hardware`: what is known of models, systems and step times."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from baton.cli_common import check_writable, console_for, data_folder
from baton.output_file import write_file

_PIPE_COLUMNS = 120


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def hardware(
    model: Annotated[str | None, _option("a name, or a config.json", "--model")] = None,
    system: Annotated[str | None, _option("a name, a YAML file, or this", "--system")] = None,
    tp: Annotated[int, _option("tensor parallelism", "--tp")] = 1,
    pp: Annotated[int, _option("pipeline stages", "--pp")] = 1,
    weights: Annotated[str | None, _option("store linear layers in fp8, int4, nvfp4 ...")] = None,
    kv: Annotated[str | None, _option("store K/V in fp8 ...", "--kv")] = None,
    data: Annotated[Path | None, _option("folder of data sets; else BATON_DATA")] = None,
    profile: Annotated[Path | None, _option("a profile of `baton profile`")] = None,
    predictor: Annotated[str | None, _option("this source alone")] = None,
    utilization: Annotated[float, _option("share of memory that may be used")] = 0.9,
    json_out: Annotated[Path | None, _option("write it here", "--json")] = None,
) -> None:
    """List models, systems and predictors, or print what the steps of one of them cost."""
    from baton.hardware.listing import listing, print_listing
    from baton.hardware.step_table import print_table, step_table

    check_writable(json_out)
    console = console_for(_PIPE_COLUMNS)
    folder = data_folder(data)
    if model is None and system is None and profile is None:
        print_listing(folder, console)
        _write(json_out, listing(folder))
        return
    asked = _asked(locals(), folder)
    found, choice = step_table(asked)
    print_table(found, choice, asked.model, console)
    _write(json_out, found)


def _asked(flags: dict[str, Any], folder: Path | None) -> Any:
    """A profile brings its own model and system; everything else is looked up."""
    from baton.hardware.lookup import find_both
    from baton.hardware.parallel import Parallel
    from baton.hardware.step_table import Asked

    model, system = find_both(flags["model"], flags["system"], flags["profile"])
    return Asked(
        model=model.quantised(flags["weights"], flags["kv"]),
        system=system,
        parallel=Parallel(tp=flags["tp"], pp=flags["pp"]),
        data=folder,
        profile=flags["profile"],
        predictor=flags["predictor"],
        utilization=flags["utilization"],
    )


def _write(path: Path | None, found: Any) -> None:
    if path is not None:
        write_file(path, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("hardware")(hardware)
