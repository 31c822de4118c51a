"""One handoff as its destination sees it: coverage, visibility, validation (0x06C-0x06E)."""

from collections.abc import Callable
from enum import StrEnum

from baton.core.ids import Fence
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.machine import Machine
from baton.core.manifest import (
    CacheEntry,
    ChunkSpec,
    Grant,
    HandoffManifest,
    covers_exactly,
    plan_grant,
    prompt_digest,
)
from baton.core.reblock import (
    Reblock,
    reblock_of,
    source_blocks,
    source_layout,
)
from baton.core.request import Request, Token
from baton.core.sets import TransferLedger, open_ledger
from baton.protocol.chunk import CHUNK, ChunkInput, ChunkState
from baton.protocol.transfer import TRANSFER, TransferInput, TransferState


class Arrival(StrEnum):
    """What a received chunk turned out to be."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CORRUPT = "corrupt"
    UNKNOWN = "unknown"
    STALE = "stale"


class _Chunk:
    """One expected chunk."""

    __slots__ = ("arrival_checksum", "checksum", "machine", "spec")

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self.machine = Machine(CHUNK)
        self.arrival_checksum = 0
        self.checksum = 0


class DestinationTransfer:
    """Reserved storage being filled under one fence.

    `block_table` covers the whole entry: first the pinned visible prefix, then `grant.block_ids`.
    """

    def __init__(
        self,
        *,
        request: Request,
        output_token_ids: tuple[int, ...],
        grant: Grant,
        block_table: tuple[int, ...],
        layout: KVLayout,
        identity: ModelIdentity,
        vocab_size: int,
    ) -> None:
        self.request = request
        self.output_token_ids = output_token_ids
        self.grant = grant
        self.block_table = block_table
        self.layout = layout
        self.identity = identity
        self.vocab_size = vocab_size
        self.machine = Machine(TRANSFER)
        self.machine.feed(TransferInput.RESERVE)
        self.plan = plan_grant(grant, layout)
        self._chunks = {spec.chunk_id: _Chunk(spec) for spec in self.plan}
        self.num_visible = 0
        self.arrived_nbytes = 0
        """Payload that was moved; if the attempt is aborted, all of it has to move again."""
        self.manifest: HandoffManifest | None = None
        self.ledger: TransferLedger = open_ledger(
            grant.token_start, grant.num_tokens, layout, is_padded=grant.block_sizes is None
        )
        if self.fence.colocated:
            self.ledger = TransferLedger()
        self.source_blocks: tuple[int, ...] = ()
        self.abort_reason = ""
        self.local_quiesced = False
        self.remote_quiesced = False
        self.next_retry_us = 0

    @property
    def fence(self) -> Fence:
        """The fence under which everything of this transfer must arrive."""
        return self.grant.fence

    @property
    def state(self) -> TransferState:
        """Current state of the transaction."""
        return self.machine.state

    @property
    def all_visible(self) -> bool:
        """Consumer gate: every expected chunk is DEVICE_VISIBLE."""
        return self.num_visible == len(self._chunks)

    @property
    def visible_chunks(self) -> tuple[int, ...]:
        """Ids of the chunks that are DEVICE_VISIBLE."""
        seen = ChunkState.DEVICE_VISIBLE
        return tuple(i for i, chunk in self._chunks.items() if chunk.machine.state is seen)

    def start(self) -> None:
        """The source has begun: bytes or renewals arrive."""
        if self.state is TransferState.RESERVED:
            self.machine.feed(TransferInput.START)

    def arrive(self, chunk_id: int, nbytes: int, checksum: int) -> Arrival:
        """RECEIVED: bytes are here. A second arrival must carry the very same bytes."""
        if self.state not in (TransferState.RESERVED, TransferState.TRANSFERRING):
            return Arrival.STALE
        chunk = self._chunks.get(chunk_id)
        if chunk is None or chunk.spec.nbytes != nbytes:
            return Arrival.UNKNOWN
        if chunk.machine.state in (ChunkState.RECEIVED, ChunkState.DEVICE_VISIBLE):
            self.ledger.duplicate_nbytes += nbytes
            same = chunk.arrival_checksum == checksum
            return Arrival.DUPLICATE if same else Arrival.CORRUPT
        self.start()
        if chunk.machine.state is ChunkState.DECLARED:  # a pull went through these itself
            chunk.machine.feed(ChunkInput.ACQUIRE)
            chunk.machine.feed(ChunkInput.SEND)
        chunk.machine.feed(ChunkInput.RECEIVE)
        chunk.arrival_checksum = checksum
        self.arrived_nbytes += nbytes
        return Arrival.NEW

    def sent(self, chunk_id: int) -> None:
        """Pull only: this side took credit and ordered the read."""
        chunk = self._chunks[chunk_id]
        chunk.machine.feed(ChunkInput.ACQUIRE)
        chunk.machine.feed(ChunkInput.SEND)

    def is_declared(self, chunk_id: int) -> bool:
        """True while nothing was done about this chunk."""
        chunk = self._chunks.get(chunk_id)
        return chunk is not None and chunk.machine.state is ChunkState.DECLARED

    def see(self, chunk_id: int, checksum: int) -> ChunkSpec:
        """DEVICE_VISIBLE: this side has read the bytes back from its own memory."""
        chunk = self._chunks[chunk_id]
        chunk.machine.feed(ChunkInput.SEE)
        chunk.checksum = checksum
        self.num_visible += 1
        return chunk.spec

    def spec(self, chunk_id: int) -> ChunkSpec:
        """The expected chunk of this id."""
        return self._chunks[chunk_id].spec

    def blocks_of(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Destination pool blocks that a chunk fills."""
        return self.grant.block_ids[spec.block_start : spec.block_start + spec.num_blocks]

    @property
    def num_source_blocks(self) -> int:
        """Blocks in which the source holds the transfer set."""
        blocks = source_blocks(self.grant, self.layout)
        return len(range(blocks.start, blocks.stop))

    def source_blocks_of(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Source pool blocks that hold a chunk, of those that the source has offered."""
        first = source_blocks(self.grant, self.layout).start
        blocks = source_blocks(self.grant, self.layout, spec)
        return self.source_blocks[blocks.start - first : blocks.stop - first]

    def reblock_of(self, spec: ChunkSpec) -> Reblock | None:
        """Which slots of both sides meet, where their blocks differ in size."""
        return reblock_of(self.grant, self.layout, spec)

    def defect(self) -> str:
        """Name of the first check that the sealed manifest fails, or "" (0x06D, order matters)."""
        assert self.manifest is not None and self.all_visible
        for name, holds in self._checks(self.manifest):
            if not holds():
                return name
        return ""

    def _checks(self, manifest: HandoffManifest) -> list[tuple[str, Callable[[], bool]]]:
        request, tensor, placement = manifest.request, manifest.tensor, manifest.placement
        tokens = self.request.prompt_token_ids + self.output_token_ids
        specs = [chunk.spec for chunk in placement.chunks]
        num_blocks = self.grant.num_remote_blocks
        return [
            ("fence_mismatch", lambda: request.fence == self.fence),
            ("transfer_id_mismatch", lambda: placement.transfer_id == self.fence.transfer_id),
            ("model_mismatch", lambda: manifest.model.digest == self.identity.digest),
            ("layout_mismatch", lambda: tensor.layout_digest == self.layout.digest),
            ("layout_mismatch", lambda: tensor.layout.digest == tensor.layout_digest),
            ("source_layout_mismatch", lambda: self._comes_from(tensor.source_layout)),
            ("prompt_mismatch", lambda: request.prompt_digest == prompt_digest(tokens)),
            ("token_start_mismatch", lambda: request.token_start == self.grant.token_start),
            ("num_tokens_mismatch", lambda: request.num_tokens == self.grant.num_tokens),
            ("route_epoch_mismatch", lambda: placement.route_epoch == self.grant.route_epoch),
            ("direction_mismatch", lambda: placement.direction == self.grant.direction),
            ("schedule_mismatch", lambda: placement.schedule == self.grant.schedule),
            ("cached_tokens", lambda: self._can_be_cached(manifest.num_cached_tokens)),
            ("chunk_set_mismatch", lambda: tuple(specs) == self.plan),
            ("coverage", lambda: covers_exactly(specs, self.layout.num_layers, num_blocks)),
            ("first_token", lambda: (manifest.first_token is None) is self.grant.is_copy),
            ("first_token_id", lambda: self._is_word(manifest.first_token)),
            ("first_token_index", lambda: self._is_next(manifest.first_token)),
            (
                "checksum_mismatch",
                lambda: all(
                    self._chunks[sealed.spec.chunk_id].checksum == sealed.checksum
                    for sealed in placement.chunks
                ),
            ),
        ]

    def _comes_from(self, layout: KVLayout) -> bool:
        """The bytes came from blocks and stages as granted, and from nothing else that differs."""
        return layout == source_layout(self.grant, self.layout)

    def _is_word(self, token: Token | None) -> bool:
        return token is None or 0 <= token.token_id < self.vocab_size

    def _is_next(self, token: Token | None) -> bool:
        return token is None or token.index == len(self.output_token_ids)

    def _can_be_cached(self, num_tokens: int) -> bool:
        """A prompt computes its last row at least; a copy computes none."""
        return 0 <= num_tokens < self.grant.num_tokens + self.grant.is_copy

    def validate(self) -> None:
        """Enter VALIDATED; the caller has seen that `defect` is empty."""
        assert self.manifest is not None and self.all_visible
        self.start()
        self.machine.feed(TransferInput.VALIDATE)

    def published(self) -> CacheEntry:
        """Enter PUBLISHED and return the entry that decode may read."""
        self.machine.feed(TransferInput.PUBLISH)
        return self.entry()

    def entry(self) -> CacheEntry:
        """The entry that this transfer would publish."""
        return CacheEntry(
            request_id=self.request.request_id,
            generation=self.fence.generation,
            transfer_id=self.fence.transfer_id,
            reservation_id=self.fence.reservation_id,
            block_ids=self.block_table,
            num_tokens=self.grant.num_tokens,
            layout_digest=self.layout.digest,
        )

    def abort(self, reason: str) -> None:
        """Enter ABORTING: storage stays owned until both sides are quiet."""
        self.machine.feed(TransferInput.ABORT)
        self.abort_reason = reason
        for chunk in self._chunks.values():
            if chunk.machine.table.allows(chunk.machine.state, ChunkInput.CANCEL):
                chunk.machine.feed(ChunkInput.CANCEL)

    @property
    def quiesced(self) -> bool:
        """True when nothing can write into the reserved blocks any more."""
        return self.local_quiesced and self.remote_quiesced

    def finish_abort(self) -> None:
        """Enter ABORTED; the caller frees the blocks now, once."""
        assert self.quiesced
        self.machine.feed(TransferInput.QUIESCE)
