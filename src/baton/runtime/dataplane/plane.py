"""The data-plane interface: register, put, poll, cancel; values in, values out, no callbacks.

No transfer engine offers a cancel or a fence (writes land after an "abort"), so the contract here
is about *when bytes can no longer change*: a `Quiesced` says that this process will neither touch
a byte nor send a notification of that reservation any more. Blocks leave quarantine only then.
"""

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


class RegionDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer needs to reach a registered region; carried by the control channel.

    Remote offsets of orders count from `offset`. `token` proves to the owner that a notification
    comes from a process that was given this descriptor, so it must not be logged.
    """

    arena: ArenaDescriptor
    offset: int
    nbytes: int
    address: str
    token: bytes


class PutOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Move one chunk between the local region and one of a connected peer.

    `runs` are (local offset, remote offset, nbytes); the checksum covers their bytes in this
    order. `write` copies local to remote and then notifies the peer; `read` copies remote to
    local. An empty `runs` with `write` is a bare notification.
    """

    peer_id: str
    peer_epoch: int
    reservation_id: int
    chunk_id: int
    direction: Literal["write", "read"]
    runs: tuple[tuple[int, int, int], ...]


class DigestOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Checksum the local `runs` of (offset, nbytes), in this order, where they lie."""

    reservation_id: int
    chunk_id: int
    runs: tuple[tuple[int, int], ...]


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
        self, arena: Arena, offset: int = 0, nbytes: int | None = None
    ) -> RegionDescriptor:
        """Offer `nbytes` of the own arena (default: to its end) to peers; once per plane."""

    def connect(self, descriptor: RegionDescriptor) -> None:
        """Map a peer's region and accept its notifications; replaces an older epoch of the peer.

        Raises RemoteProtocolError when the peer is gone or the epoch is older than the known one.
        """

    def disconnect(self, worker_id: str, epoch: int) -> None:
        """Forget a peer: fail its orders, drop its late notifications, release its mapping."""

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

    def close(self) -> None:
        """End every order and release every peer. The arena stays with its owner."""
