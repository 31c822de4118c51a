"""One arena per worker: a segment that peers map, or private memory that an engine reaches.

A segment's owner creates and unlinks it, peers only map it. It is opened by path and not by
`multiprocessing.shared_memory`, whose resource tracker unlinks a segment when a process that
merely attached exits (Python 3.11).
"""

import contextlib
import mmap
import os
import weakref
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError, RemoteProtocolError
from baton.runtime.dataplane.segments import SHM_DIR, is_segment_name, new_name

MIB = 1 << 20
Bytes = NDArray[np.uint8]


class ArenaDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What a process on this host needs to map an arena; `nbytes` is the whole segment."""

    name: str
    """Of the segment; empty for private memory, which nobody can map."""
    nbytes: int
    worker_id: str
    epoch: int


class Arena:
    """A mapped segment. Keep one per worker for its whole life: peers may write at any time."""

    def __init__(self, descriptor: ArenaDescriptor, mapping: mmap.mmap, *, owner: bool) -> None:
        self.descriptor = descriptor
        self._mapping = mapping
        self._buffer: Bytes | None = np.frombuffer(mapping, dtype=np.uint8)
        # Reading a byte of each page fills the page table now rather than in the first transfer,
        # and numpy does it without the interpreter lock.
        self._buffer[:: mmap.PAGESIZE].max()
        self._unlink = weakref.finalize(self, _unlink_own, descriptor.name, os.getpid())
        if not owner:
            self._unlink.detach()

    @classmethod
    def create(
        cls, worker_id: str, nbytes: int, *, epoch: int = 0, field: str = "worker.kv_nbytes"
    ) -> Self:
        """Create the arena of `worker_id` with at least `nbytes`, rounded up to whole pages.

        Every page is allocated here, so a full /dev/shm raises ConfigError now instead of killing
        the process with SIGBUS later. `field` is the configuration that asked for it.
        """
        if nbytes < 1:
            raise ConfigError(f"{field} is {nbytes}; an arena needs at least 1 byte")
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        _require_free(nbytes, field)
        name = new_name(worker_id)
        path = SHM_DIR / name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            os.posix_fallocate(handle, 0, nbytes)
            mapping = mmap.mmap(handle, nbytes)
        except (OSError, ValueError) as error:
            path.unlink()
            raise ConfigError(_too_small(nbytes, str(error), field)) from error
        finally:
            os.close(handle)
        descriptor = ArenaDescriptor(name=name, nbytes=nbytes, worker_id=worker_id, epoch=epoch)
        return cls(descriptor, mapping, owner=True)

    @classmethod
    def create_private(
        cls, worker_id: str, nbytes: int, *, epoch: int = 0, field: str = "worker.kv_nbytes"
    ) -> Self:
        """An arena in memory of this process alone, in huge pages where the kernel grants them.

        Reaching another process's memory costs the kernel a look-up for each page: with small ones
        a copy through it takes half as long again (measured). Raises ConfigError without memory.
        """
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{field}: no memory for an arena of {nbytes / MIB:.0f} MiB: {error}; lower it"
            ) from error
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        np.frombuffer(mapping, dtype=np.uint8)[:: mmap.PAGESIZE] = 0  # allocate now, not later
        descriptor = ArenaDescriptor(name="", nbytes=nbytes, worker_id=worker_id, epoch=epoch)
        return cls(descriptor, mapping, owner=False)

    @classmethod
    def attach(cls, descriptor: ArenaDescriptor) -> Self:
        """Map a peer's arena. Raises RemoteProtocolError when it is gone or not as described."""
        if not is_segment_name(descriptor.name):
            raise RemoteProtocolError(f"arena name {descriptor.name!r} is not a segment name")
        try:
            handle = os.open(SHM_DIR / descriptor.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise RemoteProtocolError(
                f"arena of {descriptor.worker_id} epoch {descriptor.epoch}: {error.strerror}"
            ) from error
        try:
            status = os.fstat(handle)
            if status.st_uid != os.geteuid() or status.st_size != descriptor.nbytes:
                raise RemoteProtocolError(
                    f"arena of {descriptor.worker_id}: {status.st_size} bytes of user "
                    f"{status.st_uid}, expected {descriptor.nbytes} of user {os.geteuid()}"
                )
            mapping = mmap.mmap(handle, descriptor.nbytes)
        except OSError as error:  # it takes a descriptor of its own
            raise RemoteProtocolError(
                f"arena of {descriptor.worker_id} epoch {descriptor.epoch}: {error.strerror}"
            ) from error
        finally:
            os.close(handle)
        return cls(descriptor, mapping, owner=False)

    @property
    def buffer(self) -> Bytes:
        """The whole segment as bytes. A view that outlives `close` keeps the memory mapped."""
        assert self._buffer is not None, "the arena is closed"
        return self._buffer

    @property
    def nbytes(self) -> int:
        """Size of the segment in bytes."""
        return self.descriptor.nbytes

    def close(self) -> None:
        """Unmap, and unlink when this process created the segment. A second call does nothing."""
        self._unlink()
        self._buffer = None
        try:
            self._mapping.close()
        except BufferError:
            return  # a view is still in use; the memory goes with the last one


def _unlink_own(name: str, creator_pid: int) -> None:
    # A forked child inherits this finalizer; only the creator may act on it.
    if os.getpid() == creator_pid:
        Path(SHM_DIR / name).unlink(missing_ok=True)


def _require_free(nbytes: int, field: str) -> None:
    status = os.statvfs(SHM_DIR)
    free_nbytes = status.f_bavail * status.f_frsize
    # A tmpfs mounted with size=0 has no limit of its own and reports no blocks.
    if status.f_blocks and free_nbytes < nbytes:
        raise ConfigError(_too_small(nbytes, f"only {free_nbytes / MIB:.0f} MiB are free", field))


def _too_small(nbytes: int, reason: str, field: str) -> str:
    return (
        f"{SHM_DIR}: cannot hold an arena of {nbytes / MIB:.0f} MiB: {reason}; lower "
        f"{field}, enlarge it (docker run --shm-size, or mount -o remount,size=...), "
        "or run `baton` again to sweep segments of dead workers"
    )
