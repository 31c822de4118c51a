"""One handoff as its source sees it: producer gate, credits, chunks, seal (0x06B-0x06D)."""

from collections import deque

from baton.core.ids import Direction, Fence, Schedule
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.machine import Machine
from baton.core.manifest import (
    ChunkSpec,
    Grant,
    HandoffManifest,
    PlacementNamespace,
    RequestNamespace,
    SealedChunk,
    TensorNamespace,
    plan_grant,
    prompt_digest,
)
from baton.core.reblock import Reblock, chunk_rows, destination_layout, reblock_of, source_blocks
from baton.core.request import Token
from baton.protocol.chunk import CHUNK, ChunkInput, ChunkState
from baton.protocol.credits import CreditWindow
from baton.protocol.source_copy import SOURCE_COPY, CopyInput, CopyState


class SourceTransfer:
    """A prompt's K/V on its way out, and the copy that stays until it is proven elsewhere."""

    def __init__(
        self,
        grant: Grant,
        layout: KVLayout,
        block_table: tuple[int, ...],
        num_ready_tokens: int,
    ) -> None:
        self.grant = grant
        self.layout = layout
        self.target = destination_layout(grant, layout)
        """In whose order bytes are moved and summed."""
        self.copy = Machine(SOURCE_COPY)
        self.plan = plan_grant(grant, self.target)
        self.chunks = {spec.chunk_id: Machine(CHUNK) for spec in self.plan}
        self.checksums: dict[int, int] = {}
        self.credits = CreditWindow(grant.credit_nbytes)
        self._block_table = block_table
        self.local_blocks = block_table[source_blocks(grant, layout)]
        self._ready_tokens = [num_ready_tokens] * layout.num_layers
        self._complete = False
        self._queue: deque[ChunkSpec] = deque()
        self._waiting = list(self.plan)
        self.manifest: HandoffManifest | None = None
        self.next_retry_us = 0
        self.abort_reason = ""
        self._open_gate()

    @property
    def fence(self) -> Fence:
        """The fence of this handoff."""
        return self.grant.fence

    @property
    def state(self) -> CopyState:
        """State of the source copy."""
        return self.copy.state

    def extend(self, block_table: tuple[int, ...]) -> None:
        """The prompt has more blocks now: an engine that allocates chunk by chunk."""
        assert block_table[: len(self._block_table)] == self._block_table
        self._block_table = block_table
        self.local_blocks = block_table[source_blocks(self.grant, self.layout)]

    def mark_ready(self, layer: int, num_tokens: int) -> None:
        """Producer gate: rows `0 .. num_tokens-1` of `layer` are final in the pool."""
        self._ready_tokens[layer] = max(self._ready_tokens[layer], num_tokens)
        self._open_gate()

    def mark_complete(self) -> None:
        """Every row of every layer is final."""
        self._ready_tokens = [self.grant.num_tokens] * self.layout.num_layers
        self._complete = True
        self._open_gate()

    def _open_gate(self) -> None:
        if self.grant.schedule is not Schedule.LAYER and not self._complete:
            return
        still: list[ChunkSpec] = []
        for spec in self._waiting:
            (self._queue if self._is_ready(spec) else still).append(spec)
        self._waiting = still

    def _is_ready(self, spec: ChunkSpec) -> bool:
        needed = chunk_rows(self.grant, self.layout, spec).stop
        layers = range(spec.layer_start, spec.layer_start + spec.num_layers)
        return all(self._ready_tokens[layer] >= needed for layer in layers)

    def take_ready(self) -> list[ChunkSpec]:
        """Chunks whose gate is open and, for a push, that got byte credit; now SENT."""
        assert self.state in (CopyState.COMPUTING, CopyState.HELD)
        taken = []
        while self._queue:
            spec = self._queue[0]
            if self.grant.direction is Direction.PUSH and not self.credits.try_acquire(spec.nbytes):
                break
            self._queue.popleft()
            self.chunks[spec.chunk_id].feed(ChunkInput.ACQUIRE)
            self.chunks[spec.chunk_id].feed(ChunkInput.SEND)
            taken.append(spec)
        return taken

    def summed(self, chunk_id: int, checksum: int) -> None:
        """The checksum of the source's bytes of this chunk is known."""
        self.checksums[chunk_id] = checksum

    def visible(self, chunk_id: int) -> bool:
        """CreditReturn: the destination sees this chunk. False for a repeated return."""
        machine = self.chunks.get(chunk_id)
        if machine is None or machine.state is not ChunkState.SENT:
            return False
        machine.feed(ChunkInput.RECEIVE)
        machine.feed(ChunkInput.SEE)
        if self.grant.direction is Direction.PUSH:
            self.credits.release(self.plan[chunk_id].nbytes)
        return True

    def blocks_of(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Source pool blocks of a chunk."""
        return self._block_table[source_blocks(self.grant, self.layout, spec)]

    def remote_blocks_of(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Destination pool blocks of a chunk."""
        return self.grant.block_ids[spec.block_start : spec.block_start + spec.num_blocks]

    def reblock_of(self, spec: ChunkSpec) -> Reblock | None:
        """Which slots of both sides meet, where their blocks differ in size."""
        return reblock_of(self.grant, self.layout, spec)

    @property
    def can_seal(self) -> bool:
        """True when compute is complete and every chunk's checksum is known."""
        return self._complete and len(self.checksums) == len(self.plan)

    def seal(
        self,
        token_ids: tuple[int, ...],
        identity: ModelIdentity,
        first_token: Token | None,
        num_cached_tokens: int,
    ) -> HandoffManifest:
        """Close the manifest over everything that was sent; COMPUTING -> HELD."""
        assert self.can_seal and len(token_ids) == self.grant.num_tokens
        self.copy.feed(CopyInput.SEAL)
        self.manifest = HandoffManifest(
            request=RequestNamespace(
                fence=self.fence,
                prompt_digest=prompt_digest(token_ids),
                token_start=self.grant.token_start,
                num_tokens=len(token_ids),
            ),
            model=identity,
            tensor=TensorNamespace(
                layout=self.target, layout_digest=self.target.digest, source_layout=self.layout
            ),
            placement=PlacementNamespace(
                transfer_id=self.fence.transfer_id,
                route_epoch=self.grant.route_epoch,
                direction=self.grant.direction,
                schedule=self.grant.schedule,
                chunks=tuple(
                    SealedChunk(spec=spec, checksum=self.checksums[spec.chunk_id])
                    for spec in self.plan
                ),
            ),
            first_token=first_token,
            num_cached_tokens=num_cached_tokens,
        )
        return self.manifest

    def release(self) -> None:
        """Published elsewhere under this generation: the copy need not be held."""
        self.copy.feed(CopyInput.RELEASE)
        self._return_all_credit()

    def abort(self, reason: str) -> None:
        """Stop sending; blocks stay pinned until all I/O and compute on them has ended."""
        self.copy.feed(CopyInput.ABORT)
        self.abort_reason = reason
        self._queue.clear()
        self._waiting.clear()

    def finish_abort(self) -> None:
        """All I/O has ended: FENCING -> FREED, credit returns exactly once."""
        self.copy.feed(CopyInput.QUIESCE)
        self._return_all_credit()

    def _return_all_credit(self) -> None:
        for machine in self.chunks.values():
            if machine.table.allows(machine.state, ChunkInput.CANCEL):
                machine.feed(ChunkInput.CANCEL)
        if self.credits.inflight_nbytes:
            self.credits.release(self.credits.inflight_nbytes)
