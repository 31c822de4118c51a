"""Who may touch a reservation's blocks: nobody before a capability for it was spent here."""

from baton.core.capability import abi_digest, covers, regions_of
from baton.core.messages import AbortTransfer, Authorized, ChunksReady, Present
from baton.core.reblock import source_layout
from baton.nodes.context import WorkerContext
from baton.nodes.destination_aborts import DestinationAborts
from baton.nodes.incoming import Incoming
from baton.nodes.incoming_table import IncomingTable
from baton.protocol.capability import Access, CapabilityDenial
from baton.protocol.directory import Directory
from baton.protocol.transfer import TransferState


class DestinationRights:
    """A wrong capability ends the transfer: whoever presents it is not whom the router meant."""

    def __init__(
        self,
        context: WorkerContext,
        directory: Directory,
        table: IncomingTable,
        aborts: DestinationAborts,
    ) -> None:
        self._context = context
        self._directory = directory
        self._table = table
        self._aborts = aborts

    def on_present(self, message: Present) -> None:
        """Verify and spend a capability; the one that was spent already is answered again."""
        fence, context = message.fence, self._context
        if fence.transfer_id not in self._table.by_transfer:
            self._answer_unknown(message)
            return
        incoming = self._table.live(fence)
        if incoming is None:
            return
        self._table.extend_lease(incoming)
        if incoming.capability == message.capability:
            context.counters["duplicate_messages"] += 1
        else:
            denial = context.deny(self._denial(incoming, message))
            if denial is not None:
                self._aborts.abort(incoming, f"capability_{denial}")
                return
            incoming.capability = message.capability
            context.trace("access_granted", fence)
        context.send(fence.source_id, Authorized(fence=fence))

    def _answer_unknown(self, message: Present) -> None:
        """Late, after publication; or of a transfer that is over, and then the source must know."""
        fence, context = message.fence, self._context
        entry = self._directory.lookup(fence.request_id, fence.generation)
        if entry is not None and entry.reservation_id == fence.reservation_id:
            context.counters["duplicate_messages"] += 1
            return
        context.counters["stale_messages"] += 1
        context.send(fence.source_id, AbortTransfer(fence=fence, reason="not_reserved"))

    def _denial(self, incoming: Incoming, message: Present) -> CapabilityDenial | None:
        if incoming.capability is not None:
            return CapabilityDenial.SECOND
        context = self._context
        return context.gate.admit(message.capability, self._access(incoming), context.now_us)

    def _access(self, incoming: Incoming) -> Access:
        context, grant, fence = self._context, incoming.transfer.grant, incoming.fence
        return Access(
            fence=fence,
            route_epoch=grant.route_epoch,
            direction=grant.direction,
            regions=regions_of(context.worker_id, context.epoch, grant.block_ids),
            nbytes=grant.num_remote_blocks * context.layout.bytes_per_block,
            abi_digest=abi_digest(
                context.model.identity, context.layout, source_layout(grant, context.layout)
            ),
        )

    def admits_arrival(self, incoming: Incoming) -> bool:
        """A byte that came before its right is an intrusion: count it and end the transfer."""
        if incoming.is_authorized or incoming.transfer.state is TransferState.ABORTING:
            return True
        self._context.counters["unauthorized_chunks"] += 1
        self._aborts.abort(incoming, "unauthorized_chunk")
        return False

    def admits_offer(self, incoming: Incoming, message: ChunksReady) -> bool:
        """Read nothing before the right is spent, and only from blocks that it names."""
        if incoming.capability is None:
            self._context.counters["unauthorized_offers"] += 1
            return False
        fence = incoming.fence
        blocks = regions_of(fence.source_id, fence.source_epoch, message.source_block_ids)
        if covers(incoming.capability.capability.regions, blocks):
            return True
        denial = self._context.deny(CapabilityDenial.REGIONS)
        self._aborts.abort(incoming, f"capability_{denial}")
        return False
