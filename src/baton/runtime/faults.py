"""Faults that a chaos run injects into real processes; without a FaultSpec none of this runs.

No configuration can ask for one: a FaultSpec travels only from a chaos run or a measurement to the
router host and, in a WorkerSpec, to one life of a worker. Every injected fault is counted by its
kind.
"""

import asyncio
import os
import random
import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from baton.config import BatonConfig
from baton.core.messages import Message
from baton.runtime.channel import ControlChannel
from baton.runtime.curve import CurveKeys
from baton.runtime.dataplane import (
    Arena,
    Completion,
    DataPlane,
    DigestOrder,
    PlaneStats,
    PutOrder,
    Quiesced,
    Rates,
    Received,
    RegionDescriptor,
)
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.choice import choose_plane
from baton.runtime.dataplane.pace import SlowLink
from baton.runtime.diary import PlaneDiary

_ARENA_LIMIT_NBYTES = 4096
_HEADROOM_NBYTES = 1 << 20
"""Less than an arena, and enough to say what is wrong."""


class FaultSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in one life of one process, and how often (probabilities)."""

    seed: int = 0
    drop: float = 0.0
    """Of each control message sent."""
    duplicate: float = 0.0
    delay: float = 0.0
    """Of each control message sent: it and all that follow it to that peer wait together."""
    delay_ms: int = 0
    """The longest wait."""
    flip: float = 0.0
    """Of each chunk that a peer wrote here: one byte changes before it is read back."""
    fail_arena: bool = False
    """This life cannot allocate its arena, as if shared memory were full."""
    link: str = ""
    """A file with the bytes per second that this life's copies take at most; see SlowLink."""
    diary: str = ""
    """No fault: the data plane writes down every chunk in this file; see PlaneDiary."""
    end_in_load: str = ""
    """A folder: while a file in it has the name of this worker, the worker dies (SIGKILL) in its
    next load from a lower tier, once the bytes have been moved and before anybody knows."""
    gate: str = ""
    """Faults happen only while this file exists; empty is always."""

    @property
    def is_active(self) -> bool:
        """Whether faults may happen now."""
        return not self.gate or os.path.exists(self.gate)


class FaultyChannel(ControlChannel):
    """A control channel that loses, repeats and delays; per peer it keeps the order."""

    def __init__(
        self,
        process_id: str,
        epoch: int,
        endpoint: str,
        keys: CurveKeys | None = None,
        *,
        faults: FaultSpec,
    ) -> None:
        super().__init__(process_id, epoch, endpoint, keys)
        self._faults = faults
        self._chance = random.Random(f"channel {faults.seed} {process_id} {epoch}")
        self._lanes: dict[str, list[Message]] = {}
        self._loop = asyncio.get_running_loop()

    def send(self, peer_id: str, message: Message) -> None:
        """See ControlChannel.send."""
        faults, chance = self._faults, self._chance
        copies = 1
        if faults.is_active:
            if chance.random() < faults.drop:
                self.counters["injected_drops"] += 1
                return
            if chance.random() < faults.duplicate:
                self.counters["injected_duplicates"] += 1
                copies = 2
            if peer_id not in self._lanes and chance.random() < faults.delay:
                self.counters["injected_delays"] += 1
                lane: list[Message] = []
                self._lanes[peer_id] = lane
                delay_s = chance.uniform(0, faults.delay_ms) / 1000
                self._loop.call_later(delay_s, self._release, peer_id, lane)
        held = self._lanes.get(peer_id)
        for _ in range(copies):
            if held is None:
                super().send(peer_id, message)
            else:
                held.append(message)

    def disconnect(self, peer_id: str) -> None:
        """See ControlChannel.disconnect; what waits for that life of the peer is dropped too."""
        self._lanes.pop(peer_id, None)
        super().disconnect(peer_id)

    def _release(self, peer_id: str, lane: list[Message]) -> None:
        if self._lanes.get(peer_id) is not lane:
            return  # another life of the peer has come meanwhile
        del self._lanes[peer_id]
        for message in lane:
            super().send(peer_id, message)


class FaultyPlane:
    """A data plane in whose region a byte of a landed chunk may change before it is read back.

    It stands before the plane that does the work, and may write down what that does.
    """

    def __init__(self, plane: DataPlane, *, faults: FaultSpec, place: str) -> None:
        self._plane = plane
        self._regions: list[Bytes] = []
        self._diary = PlaneDiary(faults.diary) if faults.diary else None
        self.num_flips = 0
        self._faults = faults
        self._chance = random.Random(f"plane {faults.seed} {place}")
        self._marked: dict[int, set[int]] = {}

    def register(
        self,
        arena: Arena,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        stages: Sequence[Arena] = (),
    ) -> RegionDescriptor:
        """See DataPlane.register."""
        descriptor = self._plane.register(arena, offset, nbytes, stages=stages)
        first = arena.buffer[offset : offset + descriptor.nbytes]
        self._regions = [first, *(stage.buffer for stage in stages)]
        return descriptor

    def poll(self) -> list[Completion]:
        """See DataPlane.poll."""
        completions = self._plane.poll()
        for completion in completions:
            if self._diary is not None:
                self._diary.ended(completion)
            if isinstance(completion, Received) and self._faults.is_active:
                if self._chance.random() < self._faults.flip:
                    chunks = self._marked.setdefault(completion.reservation_id, set())
                    chunks.add(completion.chunk_id)
            elif isinstance(completion, Quiesced):
                self._marked.pop(completion.reservation_id, None)
        return completions

    def digest(self, order: DigestOrder) -> int:
        """See DataPlane.digest: the order that reads a landed chunk back says where it lies."""
        chunks = self._marked.get(order.reservation_id, set())
        if order.chunk_id in chunks:
            chunks.discard(order.chunk_id)
            self._flip(order)
        handle = self._plane.digest(order)
        if self._diary is not None:
            self._diary.summing(handle)
        return handle

    def put(self, order: PutOrder) -> int:
        """See DataPlane.put."""
        if self._diary is not None:
            self._diary.ordered(order)
        return self._plane.put(order)

    def connect(self, descriptor: RegionDescriptor) -> None:
        """See DataPlane.connect."""
        self._plane.connect(descriptor)

    def disconnect(self, worker_id: str, epoch: int) -> None:
        """See DataPlane.disconnect."""
        self._plane.disconnect(worker_id, epoch)

    def sever(self, worker_id: str, epoch: int) -> bool:
        """See DataPlane.sever."""
        return self._plane.sever(worker_id, epoch)

    def cancel(self, reservation_id: int) -> None:
        """See DataPlane.cancel."""
        self._plane.cancel(reservation_id)

    def fileno(self) -> int:
        """See DataPlane.fileno."""
        return self._plane.fileno()

    def rates(self) -> Rates:
        """See DataPlane.rates."""
        return self._plane.rates()

    def calibrate(self) -> Rates:
        """See DataPlane.calibrate."""
        return self._plane.calibrate()

    def stats(self) -> PlaneStats:
        """See DataPlane.stats."""
        return self._plane.stats()

    def close(self) -> None:
        """See DataPlane.close."""
        self._plane.close()
        self._regions = []
        if self._diary is not None:
            self._diary.close()
            self._diary = None

    def _flip(self, order: DigestOrder) -> None:
        region = self._regions[order.stage]
        offset, nbytes = self._chance.choice(order.runs)
        region[offset + self._chance.randrange(nbytes)] ^= 1 << self._chance.randrange(8)
        self.num_flips += 1


def open_channel(
    process_id: str, epoch: int, endpoint: str, keys: CurveKeys | None, faults: FaultSpec | None
) -> ControlChannel:
    """The control channel of a process, with its faults if it has any."""
    if faults is None:
        return ControlChannel(process_id, epoch, endpoint, keys)
    return FaultyChannel(process_id, epoch, endpoint, keys, faults=faults)


def open_plane(config: BatonConfig, faults: FaultSpec | None, place: str) -> DataPlane:
    """The data plane of a worker, with its faults if it has any. Raises ConfigError without one."""
    pace = SlowLink(faults.link) if faults is not None and faults.link else None
    plane = choose_plane(config, pace)
    return plane if faults is None else FaultyPlane(plane, faults=faults, place=place)


def death_in_load(faults: FaultSpec | None, worker_id: str) -> Callable[[], None]:
    """What a worker calls in the middle of every load from a lower tier."""
    if faults is None or not faults.end_in_load:
        return lambda: None
    order = Path(faults.end_in_load) / worker_id

    def die() -> None:
        if order.exists():
            order.unlink()  # it is for one life
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def limit_arena(faults: FaultSpec | None, config: BatonConfig) -> None:
    """Let the next arena fail, by a limit of this process, if the faults say so.

    A segment is a file; private memory is part of the address space.
    """
    if faults is None or not faults.fail_arena:
        return
    if config.transfer.data_plane == "nixl":
        kind, limit_nbytes = resource.RLIMIT_AS, _address_space_nbytes() + _HEADROOM_NBYTES
    else:
        kind, limit_nbytes = resource.RLIMIT_FSIZE, _ARENA_LIMIT_NBYTES
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit_nbytes, hard))


def _address_space_nbytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
