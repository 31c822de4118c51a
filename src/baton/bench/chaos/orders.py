"""What a chaos run and its host process say to each other, one JSON line each."""

from typing import Literal

import msgspec

Verb = Literal["state", "spare", "watch", "fail arena", "revoke"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """To the host: do this, and answer with the state."""

    verb: Verb = "state"
    worker_id: str = ""


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that the router counts as its own."""

    worker_id: str
    role: str
    epoch: int
    pid: int


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """From the host: who serves, what is held, what was counted. The first says that it is up."""

    port: int
    workers: tuple[WorkerState, ...]
    leftovers: tuple[str, ...] = ()
    footprint: dict[str, int] = {}
    counters: dict[str, int] = {}
    """Named outcomes of the router and of every life of every worker, summed."""
    disk_blocks: dict[str, int] = {}
    """By worker, how many blocks it knows to be in its disk tier."""
    dropped_traces: tuple[str, ...] = ()
    """Lives of processes that could not write a trace event."""
    error: str = ""
