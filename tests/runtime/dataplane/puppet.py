"""A worker in a process of its own that does what it is told, to be frozen or killed."""

import multiprocessing
import os
import signal
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from baton.runtime.dataplane import Completion, PutOrder, RegionDescriptor

from .harness import MIB, Worker


class Puppet:
    """Every method runs there and returns here."""

    def __init__(self, worker_id: str, *, timeout_ms: int, nbytes: int = 32 * MIB) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        self.process = context.Process(
            target=_obey, args=(theirs, worker_id, timeout_ms, nbytes), daemon=True
        )
        self.process.start()
        theirs.close()

    @cached_property
    def descriptor(self) -> RegionDescriptor:
        """Waits for the start, so two may start at once."""
        descriptor: RegionDescriptor = self._control.recv()
        return descriptor

    def connect(self, peer: "Puppet") -> None:
        self._ask("connect", peer.descriptor)

    def disconnect(self, peer: "Puppet") -> None:
        self._ask("disconnect", peer.descriptor)

    def put(self, order: PutOrder) -> None:
        self._ask("put", order)

    def cancel(self, reservation_id: int) -> None:
        self._ask("cancel", reservation_id)

    def take(self, count: int, timeout_s: float = 5.0) -> list[Completion]:
        """Up to `count` completions, fewer once the time is over."""
        return self._ask("take", count, timeout_s)

    def sever(self, peer: "Puppet") -> bool:
        return self._ask("sever", peer.descriptor)

    def fill(self, value: int) -> None:
        self._ask("fill", value)

    def count(self, value: int) -> int:
        """How many bytes of the arena have this value."""
        return self._ask("count", value)

    def lanes(self) -> dict[str, int]:
        return self._ask("lanes")

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def _ask(self, *words: Any) -> Any:
        assert self.descriptor is not None, "started"
        self._control.send(words)
        assert self._control.poll(20), f"no answer to {words[0]}"
        return self._control.recv()


def _obey(control: Connection, worker_id: str, timeout_ms: int, nbytes: int) -> None:
    worker = Worker(worker_id, nbytes, kind="nixl", timeout_ms=timeout_ms)
    control.send(worker.descriptor)
    while True:
        try:
            verb, *values = control.recv()
        except EOFError:
            return
        control.send(_DEEDS[verb](worker, *values))


def _take(worker: Worker, count: int, timeout_s: float) -> list[Completion]:
    seen: list[Completion] = []

    def enough(found: list[Completion]) -> bool:
        seen[:] = found
        return len(found) >= count

    try:
        worker.wait(enough, timeout_s)
    except AssertionError:
        return list(seen)
    return list(seen)


def _fill(worker: Worker, value: int) -> None:
    worker.arena.buffer[:] = value


_DEEDS = {
    "connect": lambda worker, peer: worker.plane.connect(peer),
    "disconnect": lambda worker, peer: worker.plane.disconnect(peer.worker_id, peer.epoch),
    "sever": lambda worker, peer: worker.plane.sever(peer.worker_id, peer.epoch),
    "put": lambda worker, order: worker.plane.put(order),
    "cancel": lambda worker, reservation_id: worker.plane.cancel(reservation_id),
    "take": _take,
    "fill": _fill,
    "count": lambda worker, value: int(np.count_nonzero(worker.arena.buffer == value)),
    "lanes": lambda worker: worker.plane.stats().lanes,
}
