"""The data plane over NIXL, on one host or between several."""

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from baton.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from baton.runtime.dataplane.arena import Arena, Bytes
from baton.runtime.dataplane.ledger import Ledger
from baton.runtime.dataplane.meter import Meter
from baton.runtime.dataplane.nixl.agent import EngineFault
from baton.runtime.dataplane.nixl.agent_thread import AgentThread
from baton.runtime.dataplane.nixl.library import require_nixl
from baton.runtime.dataplane.nixl.notes import TOKEN_NBYTES
from baton.runtime.dataplane.nixl.peer import Peer
from baton.runtime.dataplane.pace import Pace
from baton.runtime.dataplane.peers import other_plane, require_newer
from baton.runtime.dataplane.plane import (
    Completion,
    DigestOrder,
    NixlRegion,
    NixlStage,
    PlaneStats,
    PutOrder,
    Rates,
    RegionDescriptor,
)

_CAPACITY = 8192
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEPT: list[object] = []
"""Regions for the rest of the process: whoever holds their metadata may write there at any time,
and over tcp a write into memory that was unmapped kills this process."""


class NixlDataPlane:
    """`DataPlane` over NIXL. All verbs may be called from any thread.

    A transfer that exceeds `move_timeout_ms` without a piece landing ends as a timeout, but its
    reservation is quiet only once the transfer has really ended: NIXL can stop nothing. `host` is
    the address of this host at which peers reach it: no other interface listens.
    """

    def __init__(
        self,
        *,
        checksum: bool = True,
        move_timeout_ms: int = 5_000,
        capacity: int = _CAPACITY,
        pace: Pace | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        require_nixl("transfer.data_plane=nixl")
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._descriptor: NixlRegion | None = None
        self._closed = False
        self._ledger = Ledger(capacity)
        self._meter = Meter(hashed=checksum)
        self._host = _BOOT_ID.read_text().strip()
        self._agent_name = f"baton-{secrets.token_hex(8)}"
        try:
            self._thread = AgentThread(
                self._ledger,
                self._meter,
                self._find,
                name=self._agent_name,
                host=host,
                hashed=checksum,
                move_timeout_s=move_timeout_ms / 1000,
                pace=pace,
            )
        except (EngineFault, ImportError, OSError) as error:
            raise ConfigError(
                f"transfer.data_plane=nixl: NIXL is installed but opens no agent: {error}; use "
                "transfer.data_plane=shm on one host"
            ) from error

    def register(
        self,
        arena: Arena,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        stages: Sequence[Arena] = (),
    ) -> NixlRegion:
        """See `DataPlane.register`. Raises LocalProtocolError for a part outside of the arena."""
        if nbytes is None:
            nbytes = arena.nbytes - offset
        if self._descriptor is not None:
            raise LocalProtocolError("a plane has one region and it is registered already")
        if offset < 0 or nbytes < 1 or offset + nbytes > arena.nbytes:
            raise LocalProtocolError(f"{nbytes} bytes at {offset} leave an arena of {arena.nbytes}")
        region: Bytes = arena.buffer[offset : offset + nbytes]
        regions = [region, *(stage.buffer for stage in stages)]
        _KEPT.append(regions)
        token = secrets.token_bytes(TOKEN_NBYTES)
        worker_id = arena.descriptor.worker_id
        self._thread.mailbox.token = token
        self._thread.lanes.worker_id = worker_id
        self._descriptor = NixlRegion(
            worker_id=worker_id,
            epoch=arena.descriptor.epoch,
            host=self._host,
            agent=self._agent_name,
            address=region.ctypes.data,
            nbytes=nbytes,
            metadata=self._thread.register(regions),
            token=token,
            doorbell=self._thread.doorbell.address,
            stages=tuple(
                NixlStage(address=part.ctypes.data, nbytes=part.size) for part in regions[1:]
            ),
        )
        return self._descriptor

    def connect(self, descriptor: RegionDescriptor) -> None:
        """See `DataPlane.connect`."""
        if not isinstance(descriptor, NixlRegion):
            raise other_plane(descriptor, "nixl")
        self._own()
        with self._lock:
            known = self._peers.get(descriptor.worker_id)
            if known is not None:
                if known.descriptor == descriptor:
                    return
                require_newer(descriptor, known.descriptor.epoch)
            try:
                name = self._thread.meet(descriptor.agent, descriptor.metadata)
            except (EngineFault, TimeoutError) as error:
                raise RemoteProtocolError(
                    f"the metadata of {descriptor.worker_id} epoch {descriptor.epoch}: {error}"
                ) from error
            if name != descriptor.agent:
                self._thread.call(lambda agent: agent.remove(name))
                raise RemoteProtocolError(
                    f"the metadata of {descriptor.worker_id} epoch {descriptor.epoch} is that of "
                    f"the agent {name!r}, not of {descriptor.agent!r}"
                )
            peer = Peer(descriptor, is_here=descriptor.host == self._host)
            self._peers[descriptor.worker_id] = peer
            self._thread.mailbox.senders[descriptor.agent] = descriptor
        if known is not None:
            self._let_go(known)

    def disconnect(self, worker_id: str, epoch: int) -> None:
        """See `DataPlane.disconnect`. An epoch that is not connected is ignored."""
        with self._lock:
            peer = self._find(worker_id, epoch)
            if peer is None:
                return
            del self._peers[worker_id]
        self._let_go(peer)

    def sever(self, worker_id: str, epoch: int) -> bool:
        """See `DataPlane.sever`: the connection to it must be known to be broken."""
        return self._find(worker_id, epoch) is None and self._thread.sever((worker_id, epoch))

    def put(self, order: PutOrder) -> int:
        """See `DataPlane.put`. Raises LocalProtocolError beyond the capacity or before register."""
        return self._admit(order)

    def digest(self, order: DigestOrder) -> int:
        """See `DataPlane.digest`."""
        return self._admit(order)

    def cancel(self, reservation_id: int) -> None:
        """See `DataPlane.cancel`; what moves is waited for."""
        self._ledger.cancel(reservation_id)

    def poll(self) -> list[Completion]:
        """See `DataPlane.poll`."""
        return self._ledger.take()

    def fileno(self) -> int:
        """See `DataPlane.fileno`."""
        return self._ledger.doorbell

    def rates(self) -> Rates:
        """See `DataPlane.rates`."""
        return self._meter.rates()

    def calibrate(self) -> Rates:
        """See `DataPlane.calibrate`."""
        return self._meter.calibrate()

    def stats(self) -> PlaneStats:
        """See `DataPlane.stats`."""
        return PlaneStats(
            dropped_notifications=self._dropped()[0],
            refused_connections=self._dropped()[1],
            orders=self._thread.num_orders,
            runs=self._thread.num_runs,
            lanes=dict(self._thread.lanes.counts),
        )

    def close(self) -> None:
        """See `DataPlane.close`. A last `poll` returns the ends of what was outstanding.

        The memory stays mapped as long as this process lives.
        """
        if self._closed:
            return
        self._closed = True
        self._ledger.close()
        for worker_id, peer in list(self._peers.items()):
            self.disconnect(worker_id, peer.descriptor.epoch)
        if not self._thread.close():
            _KEPT.append(self._thread)  # destroying the agent would not stop what it moves
        self._ledger.close_doorbell()

    def _admit(self, order: PutOrder | DigestOrder) -> int:
        self._own()
        handle = self._ledger.admit(order)
        self._thread.submit(handle)
        return handle

    def _let_go(self, peer: Peer) -> None:
        self._thread.mailbox.senders.pop(peer.descriptor.agent, None)
        self._ledger.fail_peer(peer.descriptor.worker_id, peer.descriptor.epoch)
        self._thread.retire(peer)

    def _dropped(self) -> tuple[int, int]:
        mailbox = self._thread.mailbox
        return mailbox.num_dropped, mailbox.num_refused

    def _own(self) -> NixlRegion:
        if self._descriptor is None:
            raise LocalProtocolError("register the own region first")
        return self._descriptor

    def _find(self, worker_id: str, epoch: int) -> Peer | None:
        peer = self._peers.get(worker_id)
        return peer if peer is not None and peer.descriptor.epoch == epoch else None
