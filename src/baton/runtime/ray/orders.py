"""What the launcher and a keeper on another node tell each other, as bytes in Ray's calls."""

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
