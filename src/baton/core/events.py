"""What happened: the inputs of a node. Times are the host's, given beside the event."""

import msgspec

from baton.core.cache import Tier
from baton.core.messages import Envelope
from baton.core.request import Request
from baton.core.work import BatchResult


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""


class Received(_Event, frozen=True, kw_only=True):
    """A message was delivered by the control channel."""

    envelope: Envelope


class BatchDone(_Event, frozen=True, kw_only=True):
    """The engine finished the batch that the node asked for."""

    result: BatchResult


class LayerReady(_Event, frozen=True, kw_only=True):
    """One layer's K/V of the running batch is final in the pool; later layers still run."""

    batch_id: int
    layer: int


class ChunkArrived(_Event, frozen=True, kw_only=True):
    """A peer's put landed here (RECEIVED); it is not verified and not visible yet."""

    source_id: str
    source_epoch: int
    reservation_id: int
    chunk_id: int
    nbytes: int
    checksum: int
    framing_nbytes: int = 0
    """Bytes of the notification: physical traffic beside the payload."""


class ChunkMoved(_Event, frozen=True, kw_only=True):
    """A put that this node ordered has ended; `checksum` is of the bytes that were moved."""

    reservation_id: int
    chunk_id: int
    nbytes: int
    checksum: int
    duration_us: int = 0
    error: str = ""


class ChunkDigested(_Event, frozen=True, kw_only=True):
    """A chunk's bytes in this node's own memory were read back and summed."""

    reservation_id: int
    chunk_id: int
    checksum: int
    error: str = ""


class IoQuiesced(_Event, frozen=True, kw_only=True):
    """No local put or digest of this reservation runs or will run any more."""

    reservation_id: int


class KVDigested(_Event, frozen=True, kw_only=True):
    """Digest of a sequence's K/V rows, asked for at its end."""

    request_id: str
    generation: int
    kv_digest: str


class BlockCopied(_Event, frozen=True, kw_only=True):
    """A copy between two tiers of this worker has ended; `checksum` is of the bytes as read.

    With `error` nothing may be said of the target, and a source that failed to be read is a miss.
    """

    copy_id: int
    nbytes: int = 0
    checksum: int = 0
    duration_us: int = 0
    error: str = ""


class TierRecovered(_Event, frozen=True, kw_only=True):
    """What an earlier life left in a tier that outlives it: (block hash, checksum) of each."""

    tier: Tier
    generation: int
    entries: tuple[tuple[bytes, int], ...]


class CacheCleared(_Event, frozen=True, kw_only=True):
    """Operator to router: no history that exists now may be reused."""


class WorkerLost(_Event, frozen=True, kw_only=True):
    """Supervisor to router: the process of that epoch is dead.

    Without `ended` it is given up: it is out of reach and may still run, which only a supervisor
    on another host can know. The word with `ended` follows when the process is known to be dead.
    """

    worker_id: str
    epoch: int
    ended: bool = True


class WorkerDraining(_Event, frozen=True, kw_only=True):
    """Operator to router: no new work for this life of a worker; what it has goes on."""

    worker_id: str
    epoch: int


class RoutesRevoked(_Event, frozen=True, kw_only=True):
    """Operator to router: no transfer that is under way may touch memory any more."""

    reason: str


class Submitted(_Event, frozen=True, kw_only=True):
    """Gateway to router: a new request."""

    request: Request


class Cancelled(_Event, frozen=True, kw_only=True):
    """Gateway to router: the client is gone, or a stop string matched (reason "stop")."""

    request_id: str
    reason: str


class Tick(_Event, frozen=True, kw_only=True):
    """A deadline passed."""


Event = (
    Received
    | BatchDone
    | LayerReady
    | ChunkArrived
    | ChunkMoved
    | ChunkDigested
    | IoQuiesced
    | KVDigested
    | BlockCopied
    | TierRecovered
    | CacheCleared
    | WorkerLost
    | WorkerDraining
    | RoutesRevoked
    | Submitted
    | Cancelled
    | Tick
)
