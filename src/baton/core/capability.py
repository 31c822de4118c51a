"""Transfer capabilities: who may touch which blocks of whom, for which transfer, until when."""

from collections.abc import Iterable, Sequence

import msgspec

from baton.core.digest import digest
from baton.core.ids import Direction, Fence
from baton.core.layout import KVLayout, ModelIdentity


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks `block_start .. block_start+num_blocks-1` of the pool of one life of a worker."""

    worker_id: str
    worker_epoch: int
    block_start: int
    num_blocks: int


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """The right to move one transfer's bytes once, minted by the router for exactly one grant."""

    issuer: str
    """The life of the router that minted it; a nonce is unique within its issuer."""
    fence: Fence
    """Tenant, transfer, attempt, both workers in their epochs, and the reservation."""
    route_epoch: int
    direction: Direction
    regions: tuple[Region, ...]
    """Everything that may be written or read; other blocks may not be touched."""
    max_nbytes: int
    abi_digest: str
    """Digest of model identity and K/V layout: what the bytes mean."""
    issued_us: int
    """The issuer's own clock; comparable only with other times of the same issuer."""
    ttl_us: int
    nonce: int

    @property
    def expires_us(self) -> int:
        """Expiry in the issuer's clock."""
        return self.issued_us + self.ttl_us

    def __repr__(self) -> str:
        """Without the nonce: what is printed must not help to guess another one."""
        return (
            f"Capability(issuer={self.issuer!r}, transfer={self.fence.transfer_id!r}, "
            f"reservation={self.fence.reservation_id}, direction={self.direction}, nonce=redacted)"
        )


class SignedCapability(msgspec.Struct, frozen=True, kw_only=True):
    """A capability with its issuer's signature over `signed_bytes`."""

    capability: Capability
    signature: bytes

    def __repr__(self) -> str:
        """Without the signature: a capability in a log must not be usable."""
        return f"SignedCapability({self.capability!r}, signature=redacted)"


def abi_digest(
    identity: ModelIdentity, layout: KVLayout, source_layout: KVLayout | None = None
) -> str:
    """What two workers must agree on before one may touch the other's memory.

    `layout` is the destination's; the source's counts too where it differs.
    """
    layouts = {layout.digest: None, (source_layout or layout).digest: None}
    return digest([identity.digest, *layouts])


def regions_of(worker_id: str, worker_epoch: int, block_ids: Iterable[int]) -> tuple[Region, ...]:
    """Blocks of one worker as the fewest ranges, in ascending order."""
    ends = [(block_id, block_id + 1) for block_id in block_ids]
    return tuple(
        Region(
            worker_id=worker_id,
            worker_epoch=worker_epoch,
            block_start=start,
            num_blocks=end - start,
        )
        for start, end in _merged(ends)
    )


def covers(regions: Sequence[Region], wanted: Iterable[Region]) -> bool:
    """True when every wanted block of every wanted worker life lies inside `regions`."""
    allowed: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for region in regions:
        ends = (region.block_start, region.block_start + region.num_blocks)
        allowed.setdefault((region.worker_id, region.worker_epoch), []).append(ends)
    merged = {owner: _merged(ends) for owner, ends in allowed.items()}
    return all(
        any(
            start <= region.block_start and region.block_start + region.num_blocks <= end
            for start, end in merged.get((region.worker_id, region.worker_epoch), ())
        )
        for region in wanted
    )


def _merged(ends: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open ranges, sorted, with touching ones joined and empty ones dropped."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ends):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
