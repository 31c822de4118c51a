"""Where workers find the router, and how the supervisor lets a worker's life in."""

from collections.abc import Callable

import msgspec


class RouterDoor(msgspec.Struct, frozen=True, kw_only=True):
    """The router's control address. `key` is its public CURVE key, empty over ipc."""

    endpoint: str
    key: bytes
    admit: Callable[[str, int, bytes], None]
    """Take messages of that worker and epoch from connections that hold this public key."""
