"""What a host must do, in the order given: the outputs of a node."""

import msgspec

from baton.core.cache import Tier
from baton.core.delivery import Delivery
from baton.core.manifest import ChunkSpec
from baton.core.messages import Message
from baton.core.reblock import Reblock
from baton.core.work import Batch


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all effects."""


class Send(_Effect, frozen=True, kw_only=True):
    """Send a message to a worker or to the router."""

    to: str
    message: Message


class RunBatch(_Effect, frozen=True, kw_only=True):
    """Run one engine step; answer with LayerReady events (if asked) and one BatchDone."""

    batch: Batch


class MoveChunk(_Effect, frozen=True, kw_only=True):
    """Move one chunk between this worker and a peer; `write` sends, otherwise it reads.

    Block ids are pool blocks of each side, in the same order; with `reblock` the sides' blocks
    differ in size, and it says which slots meet. Answer with ChunkMoved; a write is also seen by
    the peer as ChunkArrived.
    """

    peer_id: str
    peer_epoch: int
    reservation_id: int
    chunk: ChunkSpec
    write: bool
    local_blocks: tuple[int, ...]
    remote_blocks: tuple[int, ...]
    reblock: Reblock | None = None


class DigestChunk(_Effect, frozen=True, kw_only=True):
    """Settle a chunk in this worker's own memory and sum its bytes; answer with ChunkDigested.

    `inward`: it was received; after the answer the device can read it (DEVICE_VISIBLE). Outward:
    it is about to be offered to a reader; after the answer a peer can read it. The bytes are
    summed in the destination's order, which `reblock` describes where block sizes differ.
    """

    reservation_id: int
    chunk: ChunkSpec
    local_blocks: tuple[int, ...]
    inward: bool
    reblock: Reblock | None = None


class CancelIo(_Effect, frozen=True, kw_only=True):
    """Drop queued I/O of a reservation; answer with one IoQuiesced when none runs any more."""

    reservation_id: int


class DigestKV(_Effect, frozen=True, kw_only=True):
    """Digest the first `num_tokens` rows of a sequence; answer with KVDigested."""

    request_id: str
    generation: int
    block_ids: tuple[int, ...]
    num_tokens: int


class CopyBlock(_Effect, frozen=True, kw_only=True):
    """Copy one block, all layers, from one tier of this worker to another; answer BlockCopied.

    A slot of MEMORY is a pool block; slots of other tiers count from 0 in their own space. The
    name and the generation are written beside the bytes where the tier outlives the worker.
    """

    copy_id: int
    block_hash: bytes
    generation: int
    source: Tier
    source_slot: int
    target: Tier
    target_slot: int


class DropBlock(_Effect, frozen=True, kw_only=True):
    """Forget what a tier holds under a slot: it is free, and its file, if any, goes. No answer."""

    tier: Tier
    slot: int
    block_hash: bytes


class ClearTiers(_Effect, frozen=True, kw_only=True):
    """History of a lower generation is void; a tier that outlives the worker remembers it.

    Given before the drops that follow from it, so that no later life takes in what was not
    dropped in time. No answer.
    """

    generation: int


TierOrder = CopyBlock | DropBlock | ClearTiers
"""What the tiers of a host are asked for, one after another."""


class Deliver(_Effect, frozen=True, kw_only=True):
    """Hand something to the client's stream."""

    request_id: str
    delivery: Delivery


class Trace(_Effect, frozen=True, kw_only=True):
    """One trace event; everything observable is folded from these."""

    name: str
    request_id: str = ""
    generation: int = 0
    data: dict[str, int | float | str] = {}


Effect = (
    Send
    | RunBatch
    | MoveChunk
    | DigestChunk
    | CancelIo
    | DigestKV
    | CopyBlock
    | DropBlock
    | ClearTiers
    | Deliver
    | Trace
)
