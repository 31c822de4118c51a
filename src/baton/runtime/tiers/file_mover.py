"""What moves the bytes of a block between memory and its file, behind one interface."""

import os
from typing import Literal, Protocol

from baton.errors import ConfigError
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.nixl.agent import EngineFault
from baton.runtime.dataplane.nixl.file_agent import FileAgent
from baton.runtime.dataplane.nixl.library import require_nixl

Driver = Literal["files", "nixl"]
_OTHERWISE = "cache.disk_driver=files"
_IOV_MAX = 1024
"""Views in one call of the kernel (limits.h)."""


class FileMover(Protocol):
    """Called from one thread at a time. `layers` is a block as `[layer][byte]`, rows in a row each.

    Both verbs take a file that was just opened, and raise OSError where the file system refuses.
    After either nothing moves any more.
    """

    def write(self, handle: int, header: bytes, layers: Bytes) -> None:
        """Fill an empty file with the header and, behind it, the rows of all layers."""

    def read(self, handle: int, head: bytearray, layers: Bytes) -> int:
        """Fill `head`, then `layers`; returns how many bytes of both the file had.

        Of a file that is too short, `head` alone need be filled.
        """

    def close(self) -> None:
        """Let go of what it holds; the files are the tier's."""


def require_driver(driver: Driver) -> None:
    """Raise ConfigError where `cache.disk_driver` names what is not installed."""
    if driver == "nixl":
        require_nixl("cache.disk_driver=nixl", _OTHERWISE)


def open_mover(driver: Driver) -> FileMover:
    """The mover of `cache.disk_driver`. Raises ConfigError where it cannot be had."""
    if driver == "files":
        return FileCalls()
    require_driver(driver)
    try:
        return NixlFiles(FileAgent())
    except (EngineFault, ImportError) as error:
        raise ConfigError(
            f"cache.disk_driver=nixl: NIXL is installed but opens no POSIX backend: {error}; use "
            f"{_OTHERWISE}"
        ) from error


class FileCalls:
    """`writev` and `readv`: one call of the kernel for a block."""

    def write(self, handle: int, header: bytes, layers: Bytes) -> None:
        """See `FileMover.write`."""
        views = [memoryview(header), *(row.data for row in layers)]
        while views := _after(views, os.writev(handle, views[:_IOV_MAX])):
            pass

    def read(self, handle: int, head: bytearray, layers: Bytes) -> int:
        """See `FileMover.read`."""
        views = [memoryview(head), *(row.data for row in layers)]
        total = 0
        while views and (nbytes := os.readv(handle, views[:_IOV_MAX])):
            total += nbytes
            views = _after(views, nbytes)
        return total

    def close(self) -> None:
        """See `FileMover.close`."""


class NixlFiles:
    """The rows move by NIXL; the header, which no peer of NIXL ever needs, by the kernel."""

    def __init__(self, agent: FileAgent) -> None:
        self._agent = agent

    def write(self, handle: int, header: bytes, layers: Bytes) -> None:
        """See `FileMover.write`."""
        if os.pwrite(handle, header, 0) != len(header):
            raise OSError("the file system took only a part of the header")
        try:
            self._agent.move("write", handle, len(header), layers)
        except EngineFault as error:
            raise OSError(f"NIXL wrote no block: {error}") from error

    def read(self, handle: int, head: bytearray, layers: Bytes) -> int:
        """See `FileMover.read`."""
        there = os.fstat(handle).st_size
        nbytes = os.preadv(handle, [head], 0)
        if there < len(head) + layers.nbytes:
            return nbytes if nbytes < len(head) else there
        # Its pieces are requests of their own, and a cold block took five times as long (measured).
        os.posix_fadvise(handle, 0, there, os.POSIX_FADV_WILLNEED)
        try:
            self._agent.move("read", handle, len(head), layers)
        except EngineFault as error:
            raise OSError(f"NIXL read no block: {error}") from error
        return nbytes + layers.nbytes

    def close(self) -> None:
        """See `FileMover.close`."""
        self._agent.close()


def _after(views: list[memoryview], nbytes: int) -> list[memoryview]:
    """What is left of `views` after so many bytes."""
    for number, view in enumerate(views):
        if nbytes < view.nbytes:
            return [view[nbytes:], *views[number + 1 :]]
        nbytes -= view.nbytes
    return []
