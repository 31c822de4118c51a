"""A production worker as the source of one handoff, driven by hand."""

from baton.config import CacheConfig, TransferConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.effects import Effect, MoveChunk, RunBatch, Send
from baton.core.events import BatchDone, ChunkMoved, Event, IoQuiesced, LayerReady, Received
from baton.core.ids import Role
from baton.core.messages import Authorized, Envelope, Message, PeerUp, Prefill, Present
from baton.core.work import BatchResult, Sampled
from baton.nodes.context import ROUTER
from baton.nodes.source_side import SourceJob
from baton.nodes.worker import Worker
from tests.protocol.destination_worker import MODEL, peer
from tests.protocol.handoff import (
    FENCE,
    GRANT,
    KEY,
    KIB,
    LAYOUT,
    NUM_BLOCKS,
    REQUEST,
    capability,
    checksum,
)

PREFILL = Prefill(
    fence=FENCE, request=REQUEST, output_token_ids=(), grant=GRANT, capability=capability()
)


def _is_present(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Present)


class SourceWorker:
    """Worker p0 in its epoch 5, knowing d0 in its epoch 7."""

    def __init__(self, *, authorized: bool = True) -> None:
        self.authorized = authorized
        self.node = Worker(
            worker_id=FENCE.source_id,
            ordinal=0,
            epoch=FENCE.source_epoch,
            role=Role.PREFILL,
            model=MODEL,
            num_blocks=NUM_BLOCKS,
            worker=WorkerConfig(block_size=LAYOUT.block_size),
            cache=CacheConfig(milestone=Milestone.NONE),
            transfer=TransferConfig(chunk_nbytes=KIB, credit_nbytes=2 * KIB),
            heartbeat_ms=1000,
            verifier=KEY,
        )
        self.effects: list[Effect] = []
        self.from_router(PeerUp(info=peer(FENCE.destination_id, FENCE.destination_epoch)))

    def feed(self, event: Event) -> None:
        """Hand one event to the node."""
        self.effects += self.node.handle(event, 1000)

    def receive(self, sender_id: str, sender_epoch: int, message: Message) -> None:
        """A message from anybody."""
        envelope = Envelope(sender_id=sender_id, sender_epoch=sender_epoch, message=message)
        self.feed(Received(envelope=envelope))

    def from_router(self, message: Message) -> None:
        """A message from the router."""
        self.receive(ROUTER, 0, message)

    def from_destination(self, message: Message) -> None:
        """A message from the destination of the handoff."""
        self.receive(FENCE.destination_id, FENCE.destination_epoch, message)

    def prefill(self) -> None:
        """The router asks for the prompt."""
        self.from_router(PREFILL)
        if self.authorized and self.job is not None and not self.job.is_authorized:
            self.from_destination(Authorized(fence=FENCE))
            self.effects = [e for e in self.effects if not _is_present(e)]

    def layer_ready(self, layer: int) -> None:
        """One layer of the running batch is final."""
        assert self.node.queue.batch is not None
        self.feed(LayerReady(batch_id=self.node.queue.batch.batch_id, layer=layer))

    def computed(self) -> None:
        """The batch is over and drew the first token."""
        assert self.node.queue.batch is not None
        drawn = Sampled(request_id="r1", generation=3, token_id=55)
        batch_id = self.node.queue.batch.batch_id
        self.feed(BatchDone(result=BatchResult(batch_id=batch_id, sampled=(drawn,))))

    def moved(self, chunk_id: int) -> None:
        """A write that this worker ordered has ended."""
        self.feed(
            ChunkMoved(
                reservation_id=FENCE.reservation_id,
                chunk_id=chunk_id,
                nbytes=KIB,
                checksum=checksum(chunk_id),
            )
        )

    def quiesced(self) -> None:
        """No I/O of the reservation runs any more."""
        self.feed(IoQuiesced(reservation_id=FENCE.reservation_id))

    @property
    def job(self) -> SourceJob | None:
        """The job of the handoff, while the worker holds one."""
        return self.node.source.jobs.get(FENCE.transfer_id)

    def writes(self) -> list[int]:
        """Chunks ordered so far, in order."""
        return [e.chunk.chunk_id for e in self.effects if isinstance(e, MoveChunk)]

    def num_batches(self) -> int:
        """Engine steps asked for so far."""
        return sum(isinstance(effect, RunBatch) for effect in self.effects)

    def sent(self, to: str) -> list[Message]:
        """Messages sent so far to one receiver."""
        return [e.message for e in self.effects if isinstance(e, Send) and e.to == to]
