"""A worker of one arena and plane, and a peer in a process of its own."""

import multiprocessing
import select
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import msgspec
import pytest

from baton.runtime.dataplane import (
    Arena,
    Completion,
    DataPlane,
    PutOrder,
    RegionDescriptor,
    ShmDataPlane,
)
from baton.runtime.dataplane.nixl import NixlDataPlane, is_installed

KINDS = [
    "shm",
    pytest.param(
        "nixl",
        marks=pytest.mark.skipif(
            not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
        ),
    ),
]
KIB = 1 << 10
MIB = 1 << 20


class Worker:
    """One arena with its plane, in this process."""

    def __init__(
        self,
        worker_id: str,
        nbytes: int = 4 * MIB,
        *,
        epoch: int = 1,
        timeout_ms: int = 300,
        checksum: bool = True,
        kind: str = "shm",
    ) -> None:
        self.worker_id = worker_id
        self.arena = Arena.create(worker_id, nbytes, epoch=epoch)
        self.plane = open_plane(kind, checksum, timeout_ms)
        self.descriptor = self.plane.register(self.arena)

    def wait(self, enough: Callable[[list[Completion]], bool], timeout_s: float = 5.0):
        """Poll until the completions so far are `enough`; fail after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        seen: list[Completion] = []
        while not enough(seen):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"only {seen}"
            select.select([self.plane.fileno()], [], [], left_s)
            seen += self.plane.poll()
        return seen

    def take(self, count: int, timeout_s: float = 5.0) -> list[Completion]:
        """Wait for `count` completions."""
        return self.wait(lambda seen: len(seen) >= count, timeout_s)

    def close(self) -> None:
        self.plane.close()
        self.arena.close()


def open_plane(kind: str, checksum: bool = True, timeout_ms: int = 300) -> DataPlane:
    """A plane; `timeout_ms` is its limit for a peer that does not answer."""
    if kind == "nixl":
        return NixlDataPlane(checksum=checksum, move_timeout_ms=timeout_ms)
    return ShmDataPlane(checksum=checksum, notify_timeout_ms=timeout_ms)


def order(peer: RegionDescriptor, runs, *, chunk_id=1, reservation_id=1, direction="write"):
    """A put to `peer`."""
    return PutOrder(
        peer_id=peer.worker_id,
        peer_epoch=peer.epoch,
        reservation_id=reservation_id,
        chunk_id=chunk_id,
        direction=direction,
        runs=tuple(runs),
    )


class RemotePeer:
    """A worker in a process of its own, that does nothing but hold its arena and socket."""

    def __init__(self, known: RegionDescriptor, nbytes: int, kind: str = "shm") -> None:
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_hold, args=(theirs, msgspec.msgpack.encode(known), nbytes, kind), daemon=True
        )
        self.process.start()
        theirs.close()
        raw = self._control.recv_bytes()
        self.descriptor = msgspec.msgpack.decode(raw, type=RegionDescriptor)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self._control.close()


def _hold(control: Connection, known: bytes, nbytes: int, kind: str) -> None:
    worker = Worker("remote", nbytes, epoch=7, kind=kind)
    worker.plane.connect(msgspec.msgpack.decode(known, type=RegionDescriptor))
    control.send_bytes(msgspec.msgpack.encode(worker.descriptor))
    control.recv_bytes()
