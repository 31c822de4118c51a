"""The lower tiers of a simulated worker: rows by slot on the host, by name on a disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from baton.core.cache import Tier
from baton.core.effects import ClearTiers, CopyBlock, DropBlock, TierOrder
from baton.core.events import BlockCopied, TierRecovered
from baton.sim.arithmetic import Rows, checksum

if TYPE_CHECKING:
    from baton.sim.worker import SimWorker

_KINDS = ("tier_fail", "tier_corrupt")
_DISK_IS_SLOWER = 4


class DiskFile:
    """One block on a disk: what its header says, and what its bytes are."""

    def __init__(self, generation: int, checksum_: int, rows: Rows) -> None:
        self.generation = generation
        self.checksum = checksum_
        self.rows = rows


class Disk(dict[bytes, DiskFile]):
    """The files of one worker, oldest first; they outlive it, and so does what was cleared."""

    floor = 0


class SimTiers:
    """One tier thread: copies and drops in the order given. A source is read as the copy ends."""

    def __init__(self, worker: SimWorker, disk: Disk) -> None:
        self._worker = worker
        self._disk = disk
        self._host: dict[int, tuple[bytes, int, Rows]] = {}
        self._queue: deque[TierOrder] = deque()
        self._running: CopyBlock | None = None
        self.num_copies = 0

    def recovered(self) -> TierRecovered | None:
        """What an earlier life left, newest generation only; everything older goes."""
        generation = max((self._disk.floor, *(file.generation for file in self._disk.values())))
        for name in [n for n, file in self._disk.items() if file.generation < generation]:
            del self._disk[name]
        entries = tuple((name, file.checksum) for name, file in self._disk.items())
        if not entries and not generation:
            return None
        return TierRecovered(tier=Tier.DISK, generation=generation, entries=entries)

    def submit(self, order: TierOrder) -> None:
        """Queue a copy, a drop or a clear."""
        self._queue.append(order)
        self._next()

    def _next(self) -> None:
        while self._running is None and self._queue:
            order = self._queue.popleft()
            if isinstance(order, DropBlock):
                self._forget(order)
            elif isinstance(order, ClearTiers):
                self._disk.floor = max(self._disk.floor, order.generation)
            else:
                self._begin(order)

    def _forget(self, order: DropBlock) -> None:
        if order.tier is Tier.DISK:
            self._disk.pop(order.block_hash, None)
        else:
            self._host.pop(order.slot, None)

    def _begin(self, order: CopyBlock) -> None:
        worker = self._worker
        self._running = order
        self.num_copies += 1
        fault = worker.counted_fault("tier", self.num_copies, _KINDS)
        kind = getattr(fault, "kind", "")
        is_slow = Tier.DISK in (order.source, order.target)
        copy_us = worker.hardware.copy_us * (_DISK_IS_SLOWER if is_slow else 1)
        worker.after(copy_us * worker.slowness, lambda: self._end(order, copy_us, kind))

    def _end(self, order: CopyBlock, duration_us: int, fault: str) -> None:
        worker = self._worker
        self._running = None
        found = None if fault == "tier_fail" else self._read(order)
        if found is None:
            answer = BlockCopied(copy_id=order.copy_id, error=fault or "absent")
        else:
            rows = found.copy()
            is_load = order.target is Tier.MEMORY
            if fault == "tier_corrupt" and is_load:
                rows[0, -1] ^= 1
            value = checksum(rows)
            if fault == "tier_corrupt" and not is_load:
                rows[0, -1] ^= 1
            self._write(order, rows, value)
            answer = BlockCopied(
                copy_id=order.copy_id,
                nbytes=worker.layout.bytes_per_block,
                checksum=value,
                duration_us=duration_us,
            )
        worker.feed(answer)
        self._next()

    def _read(self, order: CopyBlock) -> Rows | None:
        """The source's rows; None where another block, or one of another generation, lies."""
        if order.source is Tier.MEMORY:
            rows: Rows = self._worker.rows[:, order.source_slot]
            return rows
        wanted = (order.block_hash, order.generation)
        if order.source is Tier.HOST:
            held = self._host.get(order.source_slot)
            return held[2] if held is not None and held[:2] == wanted else None
        file = self._disk.get(order.block_hash)
        return file.rows if file is not None and file.generation == order.generation else None

    def _write(self, order: CopyBlock, rows: Rows, value: int) -> None:
        worker = self._worker
        if order.target is Tier.DISK:
            self._disk.pop(order.block_hash, None)
            self._disk[order.block_hash] = DiskFile(order.generation, value, rows)
        elif order.target is Tier.HOST:
            self._host[order.target_slot] = (order.block_hash, order.generation, rows)
        else:
            worker.rows[:, order.target_slot] = rows
        worker.world.observe(lambda o: o.swapped(worker, order))

    def crash(self) -> None:
        """A file that was being written is torn: its header is right, half of its rows are not."""
        order = self._running
        if order is None or order.target is not Tier.DISK:
            return
        rows = self._read(order)
        if rows is not None:
            torn = rows.copy()
            torn[:, torn.shape[1] // 2 :] = 0
            self._disk[order.block_hash] = DiskFile(order.generation, checksum(rows), torn)
            self._worker.world.mark("torn_files")
