"""The handoff of specification 0x06C: 4 layers, 2 chunks of 1 KiB each, a 2 KiB credit window."""

from typing import TypeVar

import msgspec

from baton.core.capability import Capability, Region, SignedCapability, abi_digest, regions_of
from baton.core.ids import Direction, Fence, Schedule
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.manifest import ChunkGeometry, ChunkSpec, Grant, HandoffManifest
from baton.core.request import Request, SamplingParams, Token
from baton.protocol.capability import signed_bytes
from baton.protocol.destination import DestinationTransfer
from baton.protocol.signing import HmacKey
from baton.protocol.source import SourceTransfer

Struct = TypeVar("Struct", bound=msgspec.Struct)

KIB = 1024
LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_dim=16, block_size=4)
IDENTITY = ModelIdentity(
    model="toy",
    checkpoint_hash="checkpoint",
    tokenizer_hash="tokenizer",
    adapter_hash="adapter",
    position_policy_hash="rope",
    mask_policy_hash="causal",
)
REQUEST = Request(
    request_id="r1",
    tenant_id="t1",
    prompt_token_ids=tuple(range(100, 108)),
    sampling=SamplingParams(max_tokens=8),
)
FENCE = Fence(
    tenant_id="t1",
    request_id="r1",
    generation=3,
    attempt=2,
    source_id="p0",
    source_epoch=5,
    destination_id="d0",
    destination_epoch=7,
    reservation_id=11,
)
GRANT = Grant(
    fence=FENCE,
    token_start=0,
    num_tokens=8,
    block_ids=(40, 41),
    geometry=ChunkGeometry(chunk_layers=1, chunk_blocks=1),
    credit_nbytes=2 * KIB,
    direction=Direction.PUSH,
    schedule=Schedule.LAYER,
    route_epoch=2,
)
KEY = HmacKey("router/test", b"handoff" * 5)
TTL_US = 10_000_000
SOURCE_TABLE = (7, 9)
NUM_BLOCKS = 16


def replace(value: Struct, **changes: object) -> Struct:
    """A copy of a frozen struct with some fields changed."""
    return msgspec.structs.replace(value, **changes)


def checksum(chunk_id: int) -> int:
    """The checksum of a chunk's true bytes."""
    return 0x1000 + chunk_id


def capability(grant: Grant = GRANT, **changes: object) -> SignedCapability:
    """What the router mints for a grant, honestly signed over whatever is changed."""
    fence = grant.fence
    regions = regions_of(fence.destination_id, fence.destination_epoch, grant.block_ids)
    if grant.direction is Direction.PULL:
        pool = Region(
            worker_id=fence.source_id,
            worker_epoch=fence.source_epoch,
            block_start=0,
            num_blocks=NUM_BLOCKS,
        )
        regions += (pool,)
    minted = Capability(
        issuer=KEY.issuer,
        fence=fence,
        route_epoch=grant.route_epoch,
        direction=grant.direction,
        regions=regions,
        max_nbytes=len(grant.block_ids) * LAYOUT.bytes_per_block,
        abi_digest=abi_digest(IDENTITY, LAYOUT),
        issued_us=5_000_000,
        ttl_us=TTL_US,
        nonce=1,
    )
    return sign(replace(minted, **changes))


def sign(minted: Capability) -> SignedCapability:
    """Signed by the router's own key."""
    return SignedCapability(capability=minted, signature=KEY.sign(signed_bytes(minted)))


def source_transfer(grant: Grant = GRANT, ready: int = 0) -> SourceTransfer:
    """The source's half, with nothing computed yet."""
    return SourceTransfer(grant, LAYOUT, SOURCE_TABLE, ready)


def destination_transfer(grant: Grant = GRANT) -> DestinationTransfer:
    """The destination's half: reserved, nothing received."""
    return DestinationTransfer(
        request=REQUEST,
        output_token_ids=(),
        grant=grant,
        block_table=(40, 41, 42),
        layout=LAYOUT,
        identity=IDENTITY,
        vocab_size=1000,
    )


def seal(source: SourceTransfer) -> HandoffManifest:
    """The manifest that an honest source seals, every chunk being summed."""
    source.mark_complete()
    for spec in source.plan:
        source.summed(spec.chunk_id, checksum(spec.chunk_id))
    return source.seal(REQUEST.prompt_token_ids, IDENTITY, Token(index=0, token_id=55), 0)


def deliver(destination: DestinationTransfer, spec: ChunkSpec) -> None:
    """One chunk arrives whole and is read back."""
    destination.arrive(spec.chunk_id, spec.nbytes, checksum(spec.chunk_id))
    destination.see(spec.chunk_id, checksum(spec.chunk_id))


def complete_destination(grant: Grant = GRANT) -> DestinationTransfer:
    """A destination that has seen every chunk and holds an honest manifest."""
    destination = destination_transfer(grant)
    for spec in destination.plan:
        deliver(destination, spec)
    destination.manifest = seal(source_transfer(grant))
    return destination
