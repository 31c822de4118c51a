"""`baton manifest`: what a running deployment is made of, as a file that a start can be held to."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from baton.cli_common import check_writable
from baton.errors import BatonError
from baton.output_file import write_file

Url = Annotated[str, typer.Option("--url", help="where `baton serve` listens")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="write it here")]


class _Version(msgspec.Struct, frozen=True):
    deployment: dict[str, Any] | None


def manifest(url: Url = "http://127.0.0.1:8000", output: Output = None) -> None:
    """Show or write the deployment manifest; `baton serve --manifest FILE` starts only that."""
    from baton.runtime.deployment_record import read_record
    from baton.telemetry.gateway_answer import ask_gateway

    check_writable(output, "--output")
    tree = ask_gateway(url, "/version", _Version).deployment
    if tree is None:
        raise BatonError(f"{url} has no manifest yet: some workers are not up; ask again")
    try:
        record = read_record(tree)
    except msgspec.ValidationError as error:
        raise BatonError(f"{url} shows no manifest that this release knows: {error}") from error
    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    write_file(output, text.encode(), "--output")
    typer.echo(f"wrote the manifest {record.digest} to {output}")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(manifest)
