"""Nothing is read or written without a live capability, and no nonce is spent twice."""

from collections.abc import Sequence

from baton.core.capability import Capability
from baton.core.effects import Effect, MoveChunk, Send
from baton.core.events import Event, Received
from baton.core.messages import Authorized, Prefill, Present, RevokeRoutes
from baton.sim.observer import Observer
from baton.sim.worker import SimWorker
from baton.sim.world import World

_Life = tuple[str, int]


class RightsAreLive(Observer):
    """Knows what the router really minted, and judges every access by that alone."""

    name = "rights-are-live"

    def __init__(self) -> None:
        self._minted: dict[int, Capability] = {}
        self._authorized: dict[int, Capability] = {}
        self._spent: dict[tuple[_Life, str, int], int] = {}
        self._floors: dict[_Life, int] = {}
        self._moved_nbytes: dict[int, dict[int, int]] = {}

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        """Learn what was minted."""
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Prefill):
                signed = effect.message.capability
                if signed is not None:
                    self._minted[signed.capability.fence.reservation_id] = signed.capability

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        """Judge what a worker authorizes and what it moves."""
        life = (worker.worker_id, worker.epoch)
        if isinstance(event, Received):
            message = event.envelope.message
            if isinstance(message, RevokeRoutes):
                self._floors[life] = max(self._floors.get(life, 0), message.route_epoch)
            if isinstance(message, Present) and any(_is_authorized(effect) for effect in effects):
                self._authorize(life, message)
        for effect in effects:
            if isinstance(effect, MoveChunk):
                self._move(worker, effect)

    def _authorize(self, life: _Life, message: Present) -> None:
        capability, reservation_id = message.capability.capability, message.fence.reservation_id
        if self._minted.get(reservation_id) != capability:
            self.fail(f"{life} authorized {capability}, which the router never minted")
        nonce = (life, capability.issuer, capability.nonce)
        if self._spent.setdefault(nonce, reservation_id) != reservation_id:
            self.fail(f"{life} spent nonce {capability.nonce} on {reservation_id:x} too")
        first = reservation_id not in self._authorized
        if first and capability.route_epoch < self._floors.get(life, 0):
            self.fail(f"{life} authorized {capability}, which was revoked")
        self._authorized[reservation_id] = capability

    def _move(self, worker: SimWorker, order: MoveChunk) -> None:
        capability = self._authorized.get(order.reservation_id)
        if capability is None:
            self.fail(f"{worker.worker_id} moves {order.reservation_id:x} without a right")
            return
        destination = capability.fence.destination_id
        blocks = order.remote_blocks if order.write else order.local_blocks
        self._cover(capability, destination, blocks)
        if not order.write:
            self._cover(capability, capability.fence.source_id, order.remote_blocks)
        moved = self._moved_nbytes.setdefault(order.reservation_id, {})
        moved[order.chunk.chunk_id] = order.chunk.nbytes
        if sum(moved.values()) > capability.max_nbytes:
            self.fail(f"{order.reservation_id:x} moves more than {capability.max_nbytes} bytes")

    def _cover(self, capability: Capability, worker_id: str, blocks: Sequence[int]) -> None:
        allowed = {
            block
            for region in capability.regions
            if region.worker_id == worker_id
            for block in range(region.block_start, region.block_start + region.num_blocks)
        }
        outside = set(blocks) - allowed
        if outside:
            self.fail(f"{capability} does not reach blocks {sorted(outside)} of {worker_id}")

    def landed(
        self, worker: SimWorker, reservation_id: int, blocks: Sequence[int], nbytes: int
    ) -> None:
        """Bytes land only where a right was spent before."""
        if reservation_id not in self._authorized:
            self.fail(f"{worker.worker_id}: {reservation_id:x} lands without a right")


def _is_authorized(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Authorized)
