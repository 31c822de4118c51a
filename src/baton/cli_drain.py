"""`baton drain`: take a worker out of a running Baton without losing a request."""

import time
from typing import Annotated, Any

import msgspec
import typer

from baton.errors import BatonError

_POLL_S = 0.5
_GRACE_S = 30.0


class _Begun(msgspec.Struct, frozen=True):
    worker: str
    draining: bool


class _Version(msgspec.Struct, frozen=True):
    status: dict[str, Any]


def drain(
    worker: Annotated[str, typer.Argument(help="such as decode-1; /version lists them")],
    url: Annotated[
        str, typer.Option("--url", help="where `baton serve` listens")
    ] = "http://127.0.0.1:8000",
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", help="how long open streams may take", min=0.0)
    ] = 60.0,
) -> None:
    """Remove a worker: it gets nothing new, ends its streams, and goes; then this returns.

    Streams that are open after the time go on at another worker, with the same tokens. Needs
    gateway.allow_drain.
    """
    from baton.telemetry.gateway_answer import ask_gateway

    body = msgspec.json.encode({"worker": worker, "timeout_s": timeout_s})
    ask_gateway(url, "/workers/drain", _Begun, body)
    deadline_s = time.monotonic() + timeout_s + _GRACE_S
    while time.monotonic() < deadline_s:
        workers = ask_gateway(url, "/version", _Version).status["workers"]
        if all(one["id"] != worker for one in workers):
            typer.echo(f"{worker} has gone; {len(workers)} workers serve")
            return
        time.sleep(_POLL_S)
    raise BatonError(f"{worker} is still there {_GRACE_S:g} s after its time; see its log")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(drain)
