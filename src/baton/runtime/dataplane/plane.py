"""The data-plane interface: register, put, poll, cancel; values in, values out, no callbacks.

No transfer engine offers a cancel or a fence (writes land after an "abort"), so the contract here
is about *when bytes can no longer change*: a `Quiesced` says that this process will neither touch
a byte nor send a notification of that reservation any more. Blocks leave quarantine only then.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from baton.runtime.dataplane.arena import Arena, ArenaDescriptor


class PlaneFault(StrEnum):
    """Why an order failed; the destination bytes of a failed put are unknown."""

    CANCELLED = "cancelled"
    PEER_GONE = "peer gone"
    OUT_OF_BOUNDS = "out of bounds"
    NOTIFY_TIMEOUT = "notify timeout"
    CLOSED = "plane closed"
    TIMEOUT = "timeout"
    """Bytes may still move: until a `Quiesced` of the reservation nobody knows what lies there."""
    ENGINE = "engine failed"


class ShmRegion(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="plane", tag="shm", omit_defaults=True
):
    """What a peer on this host needs to map a registered region.

    Remote offsets of orders count from `offset`. `token` proves to the owner that a notification
    comes from a process that was given this descriptor, so it must not be logged.
    """

    arena: ArenaDescriptor
    offset: int
    nbytes: int
    address: str
    token: bytes
    stages: tuple[ArenaDescriptor, ...] = ()
    """Whole arenas of the pipeline stages behind the first, in order."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes that each pipeline stage offers."""
        return (self.nbytes, *(stage.nbytes for stage in self.stages))

    @property
    def worker_id(self) -> str:
        """Whose region it is."""
        return self.arena.worker_id

    @property
    def epoch(self) -> int:
        """Which life of that worker."""
        return self.arena.epoch


class NixlStage(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one pipeline stage behind the first."""

    address: int
    nbytes: int


class NixlRegion(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="plane", tag="nixl", omit_defaults=True
):
    """What a peer needs to reach a registered region through NIXL, from wherever it is.

    `metadata` gives rights to the memory, and `token` those to notify: neither may be logged.
    """

    worker_id: str
    epoch: int
    host: str
    """Equal for all processes under one kernel; a lane through its memory is expected then."""
    agent: str
    address: int
    """Of the first byte, in the owner's process."""
    nbytes: int
    metadata: bytes
    token: bytes
    stages: tuple[NixlStage, ...] = ()
    """Of the pipeline stages behind the first, in order."""
    doorbell: tuple[str, int] | None = None
    """Host and port for an empty datagram that says that a notification is there."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes that each pipeline stage offers."""
        return (self.nbytes, *(stage.nbytes for stage in self.stages))

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of the first byte of each pipeline stage."""
        return (self.address, *(stage.address for stage in self.stages))


RegionDescriptor = ShmRegion | NixlRegion
"""What a peer needs to reach a registered region; carried by the control channel only."""


class PutOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Move one chunk between the local region and one of a connected peer.

    `runs` are (local offset, remote offset, nbytes); the checksum covers their bytes in this
    order. `write` copies local to remote and then notifies the peer; `read` copies remote to
    local. An empty `runs` with `write` is a bare notification. Offsets count within the memory of
    one pipeline stage on each side.
    """

    peer_id: str
    peer_epoch: int
    reservation_id: int
    chunk_id: int
    direction: Literal["write", "read"]
    runs: tuple[tuple[int, int, int], ...]
    local_stage: int = 0
    remote_stage: int = 0


class DigestOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Checksum the local `runs` of (offset, nbytes), in this order, where they lie."""

    reservation_id: int
    chunk_id: int
    runs: tuple[tuple[int, int], ...]
    stage: int = 0
    """In whose memory the offsets count."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The one end of a put or digest. With `error` set, `nbytes` and `checksum` are 0.

    `duration_us` is the move or digest itself, without queueing and notification.
    """

    handle: int
    reservation_id: int
    chunk_id: int
    nbytes: int = 0
    checksum: int = 0
    duration_us: int = 0
    error: PlaneFault | None = None
    detail: str = ""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A connected peer has written one chunk; every byte of it is visible here.

    `framing_nbytes` is what the notification itself took on the wire.
    """

    source_id: str
    source_epoch: int
    reservation_id: int
    chunk_id: int
    nbytes: int
    checksum: int
    framing_nbytes: int = 0


class Quiesced(msgspec.Struct, frozen=True, kw_only=True):
    """After a cancel: no byte or notification of the reservation leaves this process any more."""

    reservation_id: int


Completion = Finished | Received | Quiesced


class PlaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start."""

    dropped_notifications: int
    """From workers or epochs that are not connected here; 0 in a healthy deployment."""
    refused_connections: int
    """Wrong user, wrong token, or too many; 0 in a healthy deployment."""
    orders: int
    """Puts of this side: writes of a push, reads of a pull."""
    runs: int
    """Contiguous stretches that they copied."""
    lanes: dict[str, int] = {}
    """Of the orders, how many by each way that was really taken, where an engine chooses it."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Measured constants of the plane, for the cost model."""

    bytes_per_us: float
    overhead_us: float
    """Fixed cost of one put beside its copy, in microseconds."""
    run_us: float = 0.0
    """Of one more run in the same put."""
    digest_bytes_per_us: float = 0.0
    """Read-back of a destination; 0 where checksums are off and nothing is read back."""


class DataPlane(Protocol):
    """How one worker moves bytes. Verbs may be called from any thread and never block on a peer."""

    def register(
        self,
        arena: Arena,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        stages: Sequence[Arena] = (),
    ) -> RegionDescriptor:
        """Offer `nbytes` of the own arena (default: to its end) to peers; once per plane.

        `stages` are the arenas of the pipeline stages behind the first, each offered whole.
        """

    def connect(self, descriptor: RegionDescriptor) -> None:
        """Map a peer's region and accept its notifications; replaces an older epoch of the peer.

        Raises RemoteProtocolError when the peer is gone, the epoch is older than the known one, or
        the region is one of another kind of plane.
        """

    def disconnect(self, worker_id: str, epoch: int) -> None:
        """Forget a peer: fail its orders, drop its late notifications, release its mapping."""

    def sever(self, worker_id: str, epoch: int) -> bool:
        """Whether nothing that a disconnected life wrote can land here any more.

        Its process must be known to be dead. False means: not known yet, ask again. What a network
        or a kernel still holds of the dead lands later than their death is known.
        """

    def put(self, order: PutOrder) -> int:
        """Queue a move and return its handle; exactly one `Finished` with it follows."""

    def digest(self, order: DigestOrder) -> int:
        """Queue a checksum of local bytes and return its handle."""

    def cancel(self, reservation_id: int) -> None:
        """Drop the orders of a reservation, refuse later ones, and answer with one `Quiesced`.

        A running put stops at the end of its piece. A repeated cancel has no further effect.
        """

    def poll(self) -> list[Completion]:
        """Return what happened since the last call, in order; never blocks."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` should be called."""

    def rates(self) -> Rates:
        """Moving averages of bandwidth and per-put overhead."""

    def calibrate(self) -> Rates:
        """Measure the rates with a small copy in private memory; about 10 ms, before serving."""

    def stats(self) -> PlaneStats:
        """What was moved and what was refused."""

    def close(self) -> None:
        """End every order and release every peer. The arena stays with its owner."""
