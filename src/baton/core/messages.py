"""The control channel's vocabulary: frozen, tagged, typed. K/V bytes never travel here."""

import msgspec

from baton.core.cache import CacheChange
from baton.core.capability import SignedCapability
from baton.core.ids import Direction, Fence, Purpose, Schedule
from baton.core.manifest import Grant, HandoffManifest
from baton.core.request import Request, Token, Usage
from baton.core.snapshot import LoadSnapshot, WorkerInfo

PROTOCOL_VERSION = 1


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Hello(_Message, frozen=True, kw_only=True, tag="hello"):
    """Worker to router, first message of an epoch; repeated until it is answered."""

    info: WorkerInfo


class Welcome(_Message, frozen=True, kw_only=True, tag="welcome"):
    """Router to worker: it has joined under this epoch and need not say hello again."""

    epoch: int


class Refused(_Message, frozen=True, kw_only=True, tag="refused"):
    """Router to worker: this worker cannot join; says which field differs."""

    reason: str


class PeerUp(_Message, frozen=True, kw_only=True, tag="peer_up"):
    """Router to worker: this peer lives under this epoch and may be paired with."""

    info: WorkerInfo


class PeerDown(_Message, frozen=True, kw_only=True, tag="peer_down"):
    """Router to worker: that life is over for this deployment; `ended`: so is its process.

    One that was only given up may still run, out of reach, and write under the rights it had.
    """

    worker_id: str
    epoch: int
    ended: bool = False


class Load(_Message, frozen=True, kw_only=True, tag="load"):
    """Worker to router: heartbeat and load in one."""

    snapshot: LoadSnapshot


class Reserve(_Message, frozen=True, kw_only=True, tag="reserve"):
    """Router to destination: hold storage for this attempt before any compute starts."""

    fence: Fence
    request: Request
    output_token_ids: tuple[int, ...]
    """Tokens already delivered by an earlier attempt; they are replayed, not drawn again."""
    direction: Direction
    schedule: Schedule
    route_epoch: int
    """The router's count of changes to its routes, at the moment it chose this one."""
    purpose: Purpose = Purpose.HANDOFF


class Reserved(_Message, frozen=True, kw_only=True, tag="reserved"):
    """Destination to router: the reservation, which fixes the exact transfer set."""

    grant: Grant


class Denied(_Message, frozen=True, kw_only=True, tag="denied"):
    """Destination or source to router: not accepted; nothing is held."""

    fence: Fence
    reason: str
    transient: bool


class Prefill(_Message, frozen=True, kw_only=True, tag="prefill"):
    """Router to source: compute the prompt and hand it over under this grant."""

    fence: Fence
    request: Request
    output_token_ids: tuple[int, ...]
    grant: Grant
    capability: SignedCapability | None = None
    """The right to move these bytes; none where no byte crosses between workers."""


class Accepted(_Message, frozen=True, kw_only=True, tag="accepted"):
    """Source to router: the prefill is queued here; it need not be repeated."""

    fence: Fence


class Present(_Message, frozen=True, kw_only=True, tag="present"):
    """Source to destination: the right to this transfer; repeated until it is answered."""

    fence: Fence
    capability: SignedCapability


class Authorized(_Message, frozen=True, kw_only=True, tag="authorized"):
    """Destination to source: verified and spent; the granted blocks may be touched now."""

    fence: Fence


class RevokeRoutes(_Message, frozen=True, kw_only=True, tag="revoke_routes"):
    """Router to worker: what was authorized under a lower route epoch is not any more."""

    route_epoch: int


class ChunksReady(_Message, frozen=True, kw_only=True, tag="chunks_ready"):
    """Source to destination, pull only: these chunks may be read from these source blocks."""

    fence: Fence
    chunk_ids: tuple[int, ...]
    source_block_ids: tuple[int, ...]


class CreditReturn(_Message, frozen=True, kw_only=True, tag="credit_return"):
    """Destination to source: these chunks are DEVICE_VISIBLE, their credit is free again."""

    fence: Fence
    chunk_ids: tuple[int, ...]


class Seal(_Message, frozen=True, kw_only=True, tag="seal"):
    """Source to destination: the complete manifest; repeated until it is acknowledged."""

    fence: Fence
    manifest: HandoffManifest


class SourceRelease(_Message, frozen=True, kw_only=True, tag="source_release"):
    """Destination to source: published under this generation; the copy may go."""

    fence: Fence


class AbortTransfer(_Message, frozen=True, kw_only=True, tag="abort_transfer"):
    """Destination to source: stop, quiesce and say so; repeated until answered."""

    fence: Fence
    reason: str


class TransferQuiesced(_Message, frozen=True, kw_only=True, tag="transfer_quiesced"):
    """Source to destination: no byte of this transfer will be written any more."""

    fence: Fence


class SourceFailed(_Message, frozen=True, kw_only=True, tag="source_failed"):
    """Source to destination: this handoff will not be completed."""

    fence: Fence
    reason: str


class Renew(_Message, frozen=True, kw_only=True, tag="renew"):
    """Either side to the other: these transfers are alive here; extend their leases."""

    fences: tuple[Fence, ...]


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """Router to both legs: the request is not wanted any more."""

    fence: Fence
    reason: str


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """One token of one request generation."""

    request_id: str
    generation: int
    token: Token


class TokenRows(_Message, frozen=True, kw_only=True, tag="tokens"):
    """Decode worker to router: the tokens of one step."""

    rows: tuple[TokenRow, ...]


class Resync(_Message, frozen=True, kw_only=True, tag="resync"):
    """Router to decode worker: send again from this index on."""

    fence: Fence
    next_index: int


class Published(_Message, frozen=True, kw_only=True, tag="published"):
    """Destination to router: this generation is published; decode may start."""

    fence: Fence
    cached_tokens: int


class Done(_Message, frozen=True, kw_only=True, tag="done"):
    """Decode worker to router: finished; repeated until acknowledged."""

    fence: Fence
    finish_reason: str
    usage: Usage
    kv_digest: str = ""


class DoneAck(_Message, frozen=True, kw_only=True, tag="done_ack"):
    """Router to decode worker: the end was taken; nothing needs to be kept."""

    fence: Fence


class Aborted(_Message, frozen=True, kw_only=True, tag="aborted"):
    """Destination to router: aborted and quiesced; nothing of this attempt is held here."""

    fence: Fence
    reason: str


class CacheChanges(_Message, frozen=True, kw_only=True, tag="cache_changes"):
    """Worker to router: what it holds has changed; change i has number `first_sequence + i`."""

    generation: int
    first_sequence: int
    changes: tuple[CacheChange, ...]


class CacheReplay(_Message, frozen=True, kw_only=True, tag="cache_replay"):
    """Router to worker: some changes were lost; say again from this number on."""

    next_sequence: int


class CacheHoldings(_Message, frozen=True, kw_only=True, tag="cache_holdings"):
    """Worker to router: everything it holds, in pages, as it was just before `next_sequence`.

    Sent where a replay asks for changes that are not remembered any more.
    """

    generation: int
    next_sequence: int
    page: int
    num_pages: int
    holdings: tuple[CacheChange, ...]


class TraceMark(msgspec.Struct, frozen=True, array_like=True):
    """One trace event of a worker, at the time of its own clock."""

    at_us: int
    name: str
    request_id: str
    generation: int
    data: dict[str, int | float | str]


class Traced(_Message, frozen=True, kw_only=True, tag="traced"):
    """Worker to router: what it traced since it said so last. Nothing is decided by it."""

    sent_us: int
    """Of the worker's clock."""
    marks: tuple[TraceMark, ...]


class ClearCache(_Message, frozen=True, kw_only=True, tag="clear_cache"):
    """Router to worker: history of a lower generation may not be used any more, in no tier."""

    generation: int


Message = (
    Hello
    | Welcome
    | Refused
    | PeerUp
    | PeerDown
    | Load
    | Reserve
    | Reserved
    | Denied
    | Prefill
    | Accepted
    | Present
    | Authorized
    | RevokeRoutes
    | ChunksReady
    | CreditReturn
    | Seal
    | SourceRelease
    | AbortTransfer
    | TransferQuiesced
    | SourceFailed
    | Renew
    | Cancel
    | TokenRows
    | Resync
    | Published
    | Done
    | DoneAck
    | Aborted
    | CacheChanges
    | CacheReplay
    | CacheHoldings
    | ClearCache
    | Traced
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a message, from which life of that process."""

    sender_id: str
    sender_epoch: int
    message: Message


def fence_of(message: Message) -> Fence | None:
    """The fence a message is judged by before its kind is looked at, if it carries one."""
    if isinstance(message, Reserved):
        return message.grant.fence
    return getattr(message, "fence", None)
