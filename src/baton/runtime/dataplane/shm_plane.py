"""The data plane of one host: workers map each other's arenas, and one thread copies."""

import select
import threading
from collections.abc import Sequence

from baton.errors import LocalProtocolError, RemoteProtocolError
from baton.runtime.dataplane.arena import Arena
from baton.runtime.dataplane.ledger import Ledger
from baton.runtime.dataplane.meter import Meter
from baton.runtime.dataplane.notify import Greeting, NotifyReceiver, NotifySender
from baton.runtime.dataplane.pace import Pace
from baton.runtime.dataplane.peers import other_plane, require_newer
from baton.runtime.dataplane.plane import (
    Completion,
    DigestOrder,
    PlaneStats,
    PutOrder,
    Rates,
    RegionDescriptor,
    ShmRegion,
)
from baton.runtime.dataplane.transfer import Peer, TransferThread

_CAPACITY = 8192


class ShmDataPlane:
    """`DataPlane` over shared memory. Poll from one thread; the other verbs from any.

    `notify_timeout_ms` bounds how long a put waits for room in a peer's notification buffer.
    `pace` is called after each copy and may hold the transfer thread, as a slow link would.
    """

    def __init__(
        self,
        *,
        checksum: bool = True,
        notify_timeout_ms: int = 2_000,
        capacity: int = _CAPACITY,
        pace: Pace | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._descriptor: ShmRegion | None = None
        self._closed = False
        self._epoll = select.epoll()
        self._receiver = NotifyReceiver(self._epoll)
        self._ledger = Ledger(capacity)
        self._epoll.register(self._ledger.doorbell, select.EPOLLIN)
        self._meter = Meter(hashed=checksum)
        self._transfer = TransferThread(
            self._ledger,
            self._meter,
            self._find,
            hashed=checksum,
            notify_timeout_s=notify_timeout_ms / 1000,
            pace=pace,
        )

    def register(
        self,
        arena: Arena,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        stages: Sequence[Arena] = (),
    ) -> ShmRegion:
        """See `DataPlane.register`. Raises LocalProtocolError for a part outside of the arena."""
        if nbytes is None:
            nbytes = arena.nbytes - offset
        if self._descriptor is not None:
            raise LocalProtocolError("a plane has one region and it is registered already")
        if offset < 0 or nbytes < 1 or offset + nbytes > arena.nbytes:
            raise LocalProtocolError(f"{nbytes} bytes at {offset} leave an arena of {arena.nbytes}")
        self._transfer.regions = [
            arena.buffer[offset : offset + nbytes],
            *(stage.buffer for stage in stages),
        ]
        self._descriptor = ShmRegion(
            arena=arena.descriptor,
            offset=offset,
            nbytes=nbytes,
            address=self._receiver.address,
            token=self._receiver.token,
            stages=tuple(stage.descriptor for stage in stages),
        )
        return self._descriptor

    def connect(self, descriptor: RegionDescriptor) -> None:
        """See `DataPlane.connect`. Mapping takes about 0.1 s per GiB, so keep it off the loop."""
        if not isinstance(descriptor, ShmRegion):
            raise other_plane(descriptor, "shm")
        with self._connecting:
            self._connect(descriptor)

    def disconnect(self, worker_id: str, epoch: int) -> None:
        """See `DataPlane.disconnect`. An epoch that is not connected is ignored."""
        with self._lock:
            peer = self._find(worker_id, epoch)
            if peer is None:
                return
            del self._peers[worker_id]
        self._ledger.fail_peer(worker_id, epoch)
        self._transfer.retire(peer)

    def sever(self, worker_id: str, epoch: int) -> bool:
        """See `DataPlane.sever`: a dead process wrote with its own hands, and they are gone."""
        return self._find(worker_id, epoch) is None

    def put(self, order: PutOrder) -> int:
        """See `DataPlane.put`. Raises LocalProtocolError beyond the capacity or before register."""
        self._own()
        handle = self._ledger.admit(order)
        self._transfer.submit(handle)
        return handle

    def digest(self, order: DigestOrder) -> int:
        """See `DataPlane.digest`."""
        self._own()
        handle = self._ledger.admit(order)
        self._transfer.submit(handle)
        return handle

    def cancel(self, reservation_id: int) -> None:
        """See `DataPlane.cancel`."""
        self._ledger.cancel(reservation_id)

    def poll(self) -> list[Completion]:
        """See `DataPlane.poll`."""
        completions = self._ledger.take()
        if not self._closed:
            completions.extend(self._receiver.receive(self._is_connected))
        return completions

    def fileno(self) -> int:
        """See `DataPlane.fileno`; an epoll descriptor, good for `loop.add_reader`."""
        return self._epoll.fileno()

    def rates(self) -> Rates:
        """See `DataPlane.rates`."""
        return self._meter.rates()

    def calibrate(self) -> Rates:
        """Measure the rates with a small copy in private memory; about 10 ms, before serving."""
        return self._meter.calibrate()

    def stats(self) -> PlaneStats:
        """Return the counts of what was moved and what was refused."""
        return PlaneStats(
            dropped_notifications=self._receiver.dropped_records,
            refused_connections=self._receiver.refused_connections,
            orders=self._transfer.num_orders,
            runs=self._transfer.num_runs,
        )

    def close(self) -> None:
        """See `DataPlane.close`. A last `poll` returns the ends of what was outstanding."""
        if self._closed:
            return
        self._closed = True
        self._ledger.close()
        for worker_id, peer in list(self._peers.items()):
            self.disconnect(worker_id, peer.descriptor.arena.epoch)
        self._transfer.close()
        self._transfer.regions = []
        self._receiver.close()
        self._epoll.close()
        self._ledger.close_doorbell()

    def _connect(self, descriptor: ShmRegion) -> None:
        own = self._own().arena
        greeting = Greeting(descriptor.token, own.worker_id, own.epoch)
        worker_id = descriptor.arena.worker_id
        known = self._peers.get(worker_id)
        if known is not None and known.descriptor == descriptor:
            return
        if known is not None:
            require_newer(descriptor, known.descriptor.epoch)
        if descriptor.offset + descriptor.nbytes > descriptor.arena.nbytes or descriptor.offset < 0:
            raise RemoteProtocolError(f"the region of {worker_id} leaves its arena")
        arenas: list[Arena] = []
        try:
            for part in (descriptor.arena, *descriptor.stages):
                arenas.append(Arena.attach(part))
            peer = Peer(descriptor, arenas, NotifySender(descriptor.address, greeting))
        except RemoteProtocolError:
            for arena in arenas:
                arena.close()
            raise
        if known is not None:
            self.disconnect(worker_id, known.descriptor.arena.epoch)
        with self._lock:
            self._peers[worker_id] = peer

    def _own(self) -> ShmRegion:
        if self._descriptor is None:
            raise LocalProtocolError("register the own region first")
        return self._descriptor

    def _find(self, worker_id: str, epoch: int) -> Peer | None:
        peer = self._peers.get(worker_id)
        return peer if peer is not None and peer.descriptor.arena.epoch == epoch else None

    def _is_connected(self, worker_id: str, epoch: int) -> bool:
        return self._find(worker_id, epoch) is not None
