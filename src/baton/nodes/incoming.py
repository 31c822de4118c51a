"""One reservation at its destination, with the reads that a pull still has to order."""

from collections import deque
from collections.abc import Iterable

from baton.core.capability import SignedCapability
from baton.core.effects import MoveChunk
from baton.core.ids import Direction, Fence
from baton.core.manifest import ChunkSpec
from baton.protocol.credits import CreditWindow
from baton.protocol.destination import DestinationTransfer


class Incoming:
    """A transaction and, for a pull, its queue of readable chunks under this side's credit."""

    def __init__(self, transfer: DestinationTransfer) -> None:
        self.transfer = transfer
        self.window = CreditWindow(transfer.grant.credit_nbytes)
        self.capability: SignedCapability | None = None
        """The right that was spent on this reservation."""
        self._readable: deque[ChunkSpec] = deque()

    @property
    def fence(self) -> Fence:
        """The fence of the reservation."""
        return self.transfer.fence

    @property
    def is_authorized(self) -> bool:
        """True when bytes may come: the right was spent, or none is needed."""
        return self.capability is not None or not self.transfer.grant.num_remote_blocks

    @property
    def is_writable(self) -> bool:
        """True when the source was let in to write: nothing else makes it quiet than its word or
        the end of its process."""
        grant = self.transfer.grant
        is_push = grant.direction is Direction.PUSH and grant.num_remote_blocks > 0
        return is_push and self.capability is not None

    def offer(self, chunk_ids: Iterable[int]) -> None:
        """The source says these chunks may be read; repeats are ignored."""
        queued = {spec.chunk_id for spec in self._readable}
        for chunk_id in chunk_ids:
            if self.transfer.is_declared(chunk_id) and chunk_id not in queued:
                queued.add(chunk_id)
                self._readable.append(self.transfer.spec(chunk_id))

    def next_reads(self) -> list[MoveChunk]:
        """Reads that got credit; they are SENT now."""
        transfer, fence, reads = self.transfer, self.fence, list[MoveChunk]()
        while self._readable and self.window.try_acquire(self._readable[0].nbytes):
            spec = self._readable.popleft()
            transfer.sent(spec.chunk_id)
            reads.append(
                MoveChunk(
                    peer_id=fence.source_id,
                    peer_epoch=fence.source_epoch,
                    reservation_id=fence.reservation_id,
                    chunk=spec,
                    write=False,
                    local_blocks=transfer.blocks_of(spec),
                    remote_blocks=transfer.source_blocks_of(spec),
                    reblock=transfer.reblock_of(spec),
                )
            )
        return reads

    def clear(self) -> None:
        """Order no further reads."""
        self._readable.clear()
