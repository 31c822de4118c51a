"""What the launcher and a keeper on another node tell each other, as bytes in Ray's calls."""

from enum import StrEnum

import msgspec


class SiteOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which share of its node a worker gets."""

    host: str
    """The node's address in the cluster."""
    place: int
    """Among the workers of this deployment on the node, from 0."""
    num_workers: int
    """Of this deployment on the node."""
    threads: int
    pin_cores: bool


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper says of its node."""

    cores: tuple[int, ...] = ()
    public_key: bytes = b""
    """The secret half never leaves the keeper's process and its worker's."""
    version: str = ""
    error: str = ""
    """Why no worker can run here."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A model on a node: its path there, or why there is none."""

    path: str = ""
    error: str = ""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has reported since the last question; `code` once it has ended."""

    lines: list[bytes] = []
    code: int | None = None


class ProcessMark(msgspec.Struct, frozen=True, kw_only=True):
    """A process as no other one can be taken for it, among those that its kernel numbers."""

    boot_id: str
    """Of the kernel, since its start."""
    pid_namespace: str
    """In which `pid` counts. Its name is given again only once nothing lives in it any more."""
    pid: int
    start_ticks: int
    """When it started; a number that is given again starts later."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper says of a start: the worker's process, or why there is none."""

    mark: ProcessMark | None = None
    error: str = ""


class Finding(StrEnum):
    """What a node says of a process."""

    ENDED = "ended"
    """It is dead, and nothing of it is on its way."""
    SENDING = "sending"
    """It is dead, and the kernel still sends what it left."""
    RUNS = "runs"
    """It was killed and has not ended yet."""
    ELSEWHERE = "elsewhere"
    """It was never a process of this kernel, or not one that can be seen here."""
