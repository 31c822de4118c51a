"""What a connector says of itself: who it is, in which life, and what its cache looks like."""

import msgspec
from msgspec.structs import replace

from baton.core.capability import Region
from baton.core.layout import KVLayout, ModelIdentity
from baton.integrations.vllm.support import SupportFacts


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a connector and where it listens. Part of what a ticket's signature binds."""

    worker_id: str
    epoch: int
    endpoints: tuple[str, ...]
    """Control endpoint of each tensor-parallel rank, in rank order: `tcp://host:port`."""


class ConnectorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a status question; what a gateway needs to mint tickets for this connector."""

    member: Member
    role: str
    """kv_producer, kv_consumer or kv_both, as vLLM calls them."""
    num_blocks: int
    """Of the K/V cache of one rank."""
    max_model_len: int
    layout: KVLayout
    """Of one rank: its own layers and heads."""
    identity: ModelIdentity
    facts: SupportFacts
    rank: int = 0
    versions: dict[str, str] = {}
    """Releases in its process beside vLLM's: baton, torch, nixl; one that is not there is left out.
    For a gateway to hold a deployment to; two connectors may differ in them."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """The whole cache of this life; a grant names the exact part."""
        return (
            Region(
                worker_id=self.member.worker_id,
                worker_epoch=self.member.epoch,
                block_start=0,
                num_blocks=self.num_blocks,
            ),
        )

    def layout_at(self, tp_size: int) -> KVLayout:
        """Of one rank of a server of the same model that has so many."""
        heads = max(1, self.facts.num_kv_heads // tp_size)
        return replace(self.layout, tp_size=tp_size, num_kv_heads=heads)

    @property
    def can_send(self) -> bool:
        """Whether it may be a source."""
        return self.role in ("kv_producer", "kv_both")

    @property
    def can_receive(self) -> bool:
        """Whether it may be a destination."""
        return self.role in ("kv_consumer", "kv_both")
