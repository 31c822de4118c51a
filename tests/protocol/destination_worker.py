"""A production worker as the destination of one handoff, driven by hand."""

from baton.config import TransferConfig, WorkerConfig
from baton.core.capability import SignedCapability
from baton.core.effects import DigestChunk, Effect, MoveChunk, Send, Trace
from baton.core.events import ChunkArrived, ChunkDigested, ChunkMoved, Event, Received
from baton.core.ids import Direction, Fence, Role, Schedule
from baton.core.layout import ModelInfo
from baton.core.manifest import ChunkSpec, Grant, HandoffManifest
from baton.core.messages import (
    Aborted,
    AbortTransfer,
    Envelope,
    Message,
    PeerUp,
    Present,
    Published,
    Reserve,
    Reserved,
    Seal,
)
from baton.core.request import Request
from baton.core.snapshot import WorkerInfo
from baton.nodes.context import ROUTER
from baton.nodes.worker import Worker
from tests.protocol.handoff import (
    FENCE,
    GRANT,
    IDENTITY,
    KEY,
    KIB,
    LAYOUT,
    NUM_BLOCKS,
    REQUEST,
    capability,
    checksum,
    replace,
    seal,
    source_transfer,
)

MODEL = ModelInfo(
    name="toy",
    max_model_len=64,
    vocab_size=1000,
    eos_token_ids=(999,),
    identity=IDENTITY,
    layout=LAYOUT,
)


def peer(worker_id: str, epoch: int) -> WorkerInfo:
    """What the router says of a prefill worker."""
    return WorkerInfo(
        worker_id=worker_id,
        epoch=epoch,
        role=Role.PREFILL,
        pid=1,
        version="test",
        endpoint="",
        model=MODEL,
        num_blocks=64,
        max_num_seqs=4,
        region=b"",
    )


class DestinationWorker:
    """Worker d0 in its epoch 7, knowing p0 in its epoch 5, with one reservation open."""

    def __init__(
        self,
        direction: Direction = Direction.PUSH,
        request: Request = REQUEST,
        *,
        authorized: bool = True,
    ) -> None:
        self.node = Worker(
            worker_id=FENCE.destination_id,
            ordinal=1,
            epoch=FENCE.destination_epoch,
            role=Role.DECODE,
            model=MODEL,
            num_blocks=NUM_BLOCKS,
            worker=WorkerConfig(block_size=LAYOUT.block_size, growth_tokens=4),
            transfer=TransferConfig(chunk_nbytes=KIB, credit_nbytes=2 * KIB),
            heartbeat_ms=1000,
            verifier=KEY,
        )
        self.effects: list[Effect] = []
        self.from_router(PeerUp(info=peer(FENCE.source_id, FENCE.source_epoch)))
        self.grant = self.reserve(replace(FENCE, reservation_id=0), direction, request)
        if authorized:
            self.present()
            self.effects.clear()

    # -- in ------------------------------------------------------------------------------------

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

    def from_source(self, message: Message) -> None:
        """A message from the source of the handoff."""
        self.receive(FENCE.source_id, FENCE.source_epoch, message)

    def reserve(
        self, fence: Fence, direction: Direction = Direction.PUSH, request: Request = REQUEST
    ) -> Grant:
        """Ask for a reservation and return what was granted."""
        self.from_router(
            Reserve(
                fence=fence,
                request=request,
                output_token_ids=(),
                direction=direction,
                schedule=Schedule.LAYER,
                route_epoch=GRANT.route_epoch,
            )
        )
        return next(m.grant for m in reversed(self.sent()) if isinstance(m, Reserved))

    def present(self, signed: SignedCapability | None = None) -> None:
        """The source shows its right, honest unless told otherwise."""
        signed = signed or capability(self.grant)
        self.from_source(Present(fence=self.grant.fence, capability=signed))

    def arrive(self, spec: ChunkSpec, **changes: object) -> None:
        """A chunk of the open reservation lands, honest but for `changes`."""
        event = ChunkArrived(
            source_id=FENCE.source_id,
            source_epoch=FENCE.source_epoch,
            reservation_id=self.grant.fence.reservation_id,
            chunk_id=spec.chunk_id,
            nbytes=spec.nbytes,
            checksum=checksum(spec.chunk_id),
        )
        self.feed(replace(event, **changes))

    def read_back(self, spec: ChunkSpec, **changes: object) -> None:
        """The host summed a chunk in this worker's own memory."""
        event = ChunkDigested(
            reservation_id=self.grant.fence.reservation_id,
            chunk_id=spec.chunk_id,
            checksum=checksum(spec.chunk_id),
        )
        self.feed(replace(event, **changes))

    def moved(self, spec: ChunkSpec, **changes: object) -> None:
        """A read that this worker ordered has ended."""
        event = ChunkMoved(
            reservation_id=self.grant.fence.reservation_id,
            chunk_id=spec.chunk_id,
            nbytes=spec.nbytes,
            checksum=checksum(spec.chunk_id),
        )
        self.feed(replace(event, **changes))

    def deliver_all(self) -> None:
        """Every chunk arrives and is read back."""
        for spec in self.plan:
            self.arrive(spec)
            self.read_back(spec)

    def seal(self, manifest: HandoffManifest | None = None, fence: Fence | None = None) -> None:
        """The source's seal, honest unless told otherwise."""
        manifest = manifest or self.manifest()
        self.from_source(Seal(fence=fence or self.grant.fence, manifest=manifest))

    # -- out -----------------------------------------------------------------------------------

    @property
    def plan(self) -> tuple[ChunkSpec, ...]:
        """The chunks of the grant."""
        return source_transfer(self.grant).plan

    def manifest(self) -> HandoffManifest:
        """What an honest source seals under this grant."""
        return seal(source_transfer(self.grant))

    def sent(self, to: str | None = None) -> list[Message]:
        """Messages sent so far, optionally only to one receiver."""
        sends = [effect for effect in self.effects if isinstance(effect, Send)]
        return [effect.message for effect in sends if to in (None, effect.to)]

    def orders(self, kind: type[MoveChunk] | type[DigestChunk]) -> list[int]:
        """Chunk ids of the I/O asked for, in order."""
        return [effect.chunk.chunk_id for effect in self.effects if isinstance(effect, kind)]

    @property
    def traces(self) -> list[str]:
        """Names of the trace events so far."""
        return [effect.name for effect in self.effects if isinstance(effect, Trace)]

    @property
    def is_published(self) -> bool:
        """True when decode may read the entry, by any evidence."""
        fence = self.grant.fence
        evidence = {
            self.node.directory.lookup(fence.request_id, fence.generation) is not None,
            any(isinstance(message, Published) for message in self.sent()),
            "admitted" in self.traces,
            fence.transfer_id in self.node.decode.live,
        }
        assert len(evidence) == 1, "published means all of these or none"
        return evidence.pop()

    @property
    def abort_reason(self) -> str:
        """Why the transfer was aborted, as its source was told; "" if it was not."""
        reasons = [m.reason for m in self.sent() if isinstance(m, AbortTransfer | Aborted)]
        return reasons[0] if reasons else ""

    @property
    def counters(self) -> dict[str, int]:
        """Named outcomes so far."""
        return dict(self.node.counters)
