"""Stages chunks between a pool that peers cannot reach and its mirror, off the event loop."""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from baton.core.manifest import ChunkSpec


class Stager(Protocol):
    """Copies blocks of some layers between pool and mirror."""

    def copy_out(self, layers: range, blocks: tuple[int, ...]) -> None:
        """Pool to mirror."""

    def copy_in(self, layers: range, blocks: tuple[int, ...]) -> None:
        """Mirror to pool."""


class _Job:
    def __init__(
        self,
        reservation_id: int,
        chunk: ChunkSpec,
        blocks: tuple[int, ...],
        inward: bool,
        then: Callable[[str], None],
    ) -> None:
        self.reservation_id = reservation_id
        self.layers = range(chunk.layer_start, chunk.layer_start + chunk.num_layers)
        self.blocks = blocks
        self.inward = inward
        self.then = then


class StagingThread:
    """One thread copies, in order. After a cancel no byte of that reservation is copied.

    All methods are called on the event loop, and so are the callbacks.
    """

    def __init__(self, stager: Stager, loop: asyncio.AbstractEventLoop) -> None:
        self._stager = stager
        self._loop = loop
        self._open: Counter[int] = Counter()
        self._cancelled: dict[int, Callable[[], None]] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="baton-staging", daemon=True)
        self._thread.start()

    def copy_out(
        self,
        reservation_id: int,
        chunk: ChunkSpec,
        blocks: tuple[int, ...],
        then: Callable[[str], None],
    ) -> None:
        """Bring a chunk into the mirror, then call `then(error)`; not at all after a cancel."""
        self._submit(_Job(reservation_id, chunk, blocks, False, then))

    def copy_in(
        self,
        reservation_id: int,
        chunk: ChunkSpec,
        blocks: tuple[int, ...],
        then: Callable[[str], None],
    ) -> None:
        """Bring a chunk from the mirror into the pool, then call `then(error)`."""
        self._submit(_Job(reservation_id, chunk, blocks, True, then))

    def _submit(self, job: _Job) -> None:
        if job.reservation_id not in self._cancelled:
            self._open[job.reservation_id] += 1
            self._jobs.put(job)

    def cancel(self, reservation_id: int, quiesced: Callable[[], None]) -> None:
        """Call `quiesced` once no job of this reservation runs or will run."""
        if self._open[reservation_id]:
            self._cancelled[reservation_id] = quiesced
        else:
            self._open.pop(reservation_id, None)
            quiesced()

    def close(self) -> None:
        """Finish what runs and stop."""
        self._jobs.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            error = ""
            if job.reservation_id not in self._cancelled:
                try:
                    copy = self._stager.copy_in if job.inward else self._stager.copy_out
                    copy(job.layers, job.blocks)
                except Exception as failure:  # the chunk's end, not the thread's
                    error = f"staging failed: {failure}"
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._finish, job, error)

    def _finish(self, job: _Job, error: str) -> None:
        reservation_id = job.reservation_id
        self._open[reservation_id] -= 1
        quiesced = self._cancelled.get(reservation_id)
        if quiesced is None:
            job.then(error)
        elif not self._open[reservation_id]:
            del self._cancelled[reservation_id]
            quiesced()
        if not self._open[reservation_id]:
            del self._open[reservation_id]
