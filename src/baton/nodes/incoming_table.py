"""The unpublished transfers of a destination: by transfer, by reservation, each under a lease."""

from baton.core.ids import Fence
from baton.nodes.context import WorkerContext
from baton.nodes.incoming import Incoming
from baton.protocol.lease import LeaseTable
from baton.protocol.transfer import TransferState


class IncomingTable:
    """Everything reserved and not published. What is not live under its own fence is stale."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.by_transfer: dict[str, Incoming] = {}
        self.by_reservation: dict[int, Incoming] = {}
        self.leases: LeaseTable[str] = LeaseTable()

    @property
    def num_reserved_blocks(self) -> int:
        """Blocks held for transfers that are neither published nor aborting."""
        return sum(
            len(incoming.transfer.block_table)
            for incoming in self.by_transfer.values()
            if incoming.transfer.state is not TransferState.ABORTING
        )

    def open(self, incoming: Incoming) -> None:
        """Hold a new reservation under a lease on its source."""
        self.by_transfer[incoming.fence.transfer_id] = incoming
        self.by_reservation[incoming.fence.reservation_id] = incoming
        self.extend_lease(incoming)

    def live(self, fence: Fence) -> Incoming | None:
        """The transfer of exactly this fence that is not aborting; else stale and counted."""
        incoming = self.by_transfer.get(fence.transfer_id)
        aborting = incoming is not None and incoming.transfer.state is TransferState.ABORTING
        if incoming is None or incoming.fence != fence or aborting:
            self._context.counters["stale_messages"] += 1
            return None
        return incoming

    def extend_lease(self, incoming: Incoming) -> None:
        """The source has shown that it is alive."""
        lease_us = self._context.transfer.lease_ms * 1000
        self.leases.set(incoming.fence.transfer_id, self._context.now_us + lease_us)

    def renew(self, fence: Fence) -> None:
        """The source says this handoff is alive there."""
        incoming = self.by_transfer.get(fence.transfer_id)
        if incoming is not None and incoming.fence == fence:
            self.extend_lease(incoming)

    def forget(self, incoming: Incoming) -> None:
        """Published or aborted: nothing is known of it here any more."""
        del self.by_transfer[incoming.fence.transfer_id]
        del self.by_reservation[incoming.fence.reservation_id]
        self.leases.drop(incoming.fence.transfer_id)
