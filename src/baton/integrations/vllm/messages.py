"""What connectors and their gateway say to each other; the handoff's own words are the core's."""

import msgspec

from baton.core.capability import SignedCapability
from baton.core.digest import digest
from baton.core.ids import Fence
from baton.core.manifest import Grant
from baton.core.messages import (
    AbortTransfer,
    ChunksReady,
    CreditReturn,
    Renew,
    Seal,
    SourceFailed,
    SourceRelease,
    TransferQuiesced,
)
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.records import HandoffRecord
from baton.runtime.dataplane import NixlRegion, ShmRegion

MAX_ASKED = 256
"""Transfers that one question asks for."""


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class CacheMap(msgspec.Struct, frozen=True, kw_only=True):
    """Where blocks lie in a region: layer `l` of block `b` begins at `l * layer_nbytes + b *
    block_stride_nbytes`, and holds `block_nbytes`."""

    layer_stride_nbytes: int
    block_stride_nbytes: int
    block_nbytes: int
    num_layers: int
    num_blocks: int


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """Which process it is, for whoever can see it: under the same kernel and pid namespace."""

    place: str
    pid: int
    started: int


class Pair(_Message, frozen=True, kw_only=True, tag="pair"):
    """Destination to source, first of all: this is my cache, show me yours."""

    info: ConnectorInfo
    region: NixlRegion | ShmRegion
    cache: CacheMap
    process: Process


class Paired(_Message, frozen=True, kw_only=True, tag="paired"):
    """Source to destination: the two caches fit, and this one is here."""

    info: ConnectorInfo
    region: NixlRegion | ShmRegion
    cache: CacheMap
    process: Process


class NotPaired(_Message, frozen=True, kw_only=True, tag="not_paired"):
    """Source to destination: what differs, with both values and the remedy."""

    reason: str


class Claim(_Message, frozen=True, kw_only=True, tag="claim"):
    """Destination to source: fill exactly these blocks; repeated until it is answered."""

    fence: Fence
    grant: Grant
    capability: SignedCapability


class Claimed(_Message, frozen=True, kw_only=True, tag="claimed"):
    """Source to destination: the claim is known here and waits for its prompt, or moves."""

    fence: Fence


class ClaimDenied(_Message, frozen=True, kw_only=True, tag="claim_denied"):
    """Source to destination: nothing will be moved under this claim, and nothing was."""

    fence: Fence
    reason: str


class Decline(_Message, frozen=True, kw_only=True, tag="decline"):
    """Destination or gateway to source: nobody will claim this handoff."""

    fence: Fence
    capability: SignedCapability


class StatusQuestion(_Message, frozen=True, kw_only=True, tag="status"):
    """Gateway or operator to a connector."""


class Status(_Message, frozen=True, kw_only=True, tag="status_answer"):
    """Who this is, and what it holds at this moment. Nothing is held at rest."""

    info: ConnectorInfo
    held_blocks: int
    """Blocks that vLLM may not reuse because of a source's copy here."""
    loading_blocks: int
    """Blocks that are being filled, or are in quarantine."""
    open_holds: int
    open_loads: int
    waiting_claims: int
    open_tickets: int
    """Of prompts that wait for room here, and declines that wait for their source."""
    counters: dict[str, int]
    bytes_per_us: float = 0.0
    """Of the data plane's moves, as measured by this side; 0 before the first."""


class HandoffQuestion(_Message, frozen=True, kw_only=True, tag="handoffs"):
    """Gateway or operator to a destination: how did these loads go?"""

    transfer_ids: tuple[str, ...]
    """At most `MAX_ASKED`; what is beyond is not answered."""


class HandoffRecords(_Message, frozen=True, kw_only=True, tag="handoffs_answer"):
    """What this rank remembers of them, one record a leg; who has not ended has none."""

    records: tuple[HandoffRecord, ...]
    host: str
    """Whose monotonic clock it is: times of one host are comparable as they are."""
    now_us: int
    """Of that clock, as this was said."""


Message = (
    Pair
    | Paired
    | NotPaired
    | Claim
    | Claimed
    | ClaimDenied
    | Decline
    | StatusQuestion
    | Status
    | HandoffQuestion
    | HandoffRecords
    | ChunksReady
    | CreditReturn
    | Seal
    | SourceRelease
    | AbortTransfer
    | TransferQuiesced
    | SourceFailed
    | Renew
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a message, from which life and rank."""

    sender_id: str
    sender_epoch: int
    sender_rank: int
    sender_tp: int = 1
    """How many ranks its server has."""
    message: Message


def _without_prose(schema: object) -> object:
    if isinstance(schema, dict):
        return {key: _without_prose(item) for key, item in schema.items() if key != "description"}
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    return schema


COMPATIBILITY = f"baton-vllm/1 {digest(_without_prose(msgspec.json.schema(Envelope)))}".encode()
"""First frame of every message; whoever begins otherwise speaks another version."""
