"""Which lives of other workers a worker may deal with, by the router's word."""

from baton.core.snapshot import WorkerInfo
from baton.nodes.context import WorkerContext
from baton.nodes.destination_aborts import DestinationAborts
from baton.nodes.source_aborts import SourceAborts


class Peers:
    """Keeps `context.peers`. A life that is over never comes back, however late its words are."""

    def __init__(
        self, context: WorkerContext, sending: SourceAborts, receiving: DestinationAborts
    ) -> None:
        self._context = context
        self._sending = sending
        self._receiving = receiving
        self._over: dict[str, int] = {}

    def on_up(self, info: WorkerInfo) -> None:
        """A newer life of a peer has joined: the older one is given up, though not proven dead."""
        peers = self._context.peers
        known = peers.get(info.worker_id)
        if info.worker_id == self._context.worker_id or (known and known.epoch >= info.epoch):
            return
        if info.epoch <= self._over.get(info.worker_id, 0):
            return  # a late word of a life that is over
        if known is not None:
            self.on_down(known.worker_id, known.epoch, ended=False)
        peers[info.worker_id] = info

    def on_down(self, worker_id: str, epoch: int, *, ended: bool) -> None:
        """That life is over; `ended` when its process is known to be dead. May come twice."""
        peer = self._context.peers.get(worker_id)
        self._over[worker_id] = max(epoch, self._over.get(worker_id, 0))
        if peer is not None and peer.epoch <= epoch:
            del self._context.peers[worker_id]
        self._sending.on_peer_lost(worker_id, epoch)
        self._receiving.on_peer_lost(worker_id, epoch, ended=ended)
