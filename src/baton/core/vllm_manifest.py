"""What a deployment of vLLM servers is made of, as far as it is known (specification 0x0FB, 0x0FF).

A server of somebody else tells less than a worker of our own engine. What nothing tells stands as
`UNKNOWN` at its field; a start is held to what is known, and to what is unknown staying so.
"""

from collections.abc import Iterator

import msgspec

from baton.core.deployment_manifest import DeploymentReceipt, FallbackManifest
from baton.core.digest import digest

UNKNOWN = "unknown: nothing that the server says or was started with tells it"


class CacheManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The K/V tensor ABI of one rank of a server, as in `KVLayout`; each field may be unknown."""

    num_layers: int | str = UNKNOWN
    num_kv_heads: int | str = UNKNOWN
    head_dim: int | str = UNKNOWN
    block_size: int | str = UNKNOWN
    """Tokens of a block."""
    dtype_k: str = UNKNOWN
    dtype_v: str = UNKNOWN
    axis_order: str = UNKNOWN
    tp_size: int | str = UNKNOWN
    pp_size: int | str = UNKNOWN


class ServerManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: what it serves, what moves its K/V, and how its cache lies."""

    role: str
    """prefill, decode or mixed, as the gateway uses it."""
    vllm: str = UNKNOWN
    """Its release."""
    model: str = UNKNOWN
    """The name that it serves."""
    root: str = UNKNOWN
    """What it was loaded from, as it says."""
    checkpoint_hash: str = UNKNOWN
    tokenizer_hash: str = UNKNOWN
    adapter_hash: str = UNKNOWN
    connector: str = UNKNOWN
    """The class that vLLM loaded; "none" without one."""
    kv_role: str = UNKNOWN
    data_plane: str = UNKNOWN
    nixl: str = UNKNOWN
    """Release of NIXL in its environment."""
    torch: str = UNKNOWN
    baton: str = UNKNOWN
    """Release of the package that its connector is from."""
    buffer_device: str = UNKNOWN
    """Where the memory lies that K/V is moved from and to."""
    attention_backend: str = UNKNOWN
    prefix_caching: str = UNKNOWN
    """on or off."""
    speculative_decoding: str = UNKNOWN
    cache_abi: CacheManifest = CacheManifest()


class HandoffManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the gateway lets K/V move between two servers."""

    connector: str
    """nixl: vLLM's own; baton: ours."""
    direction: str
    handles: str
    """What names K/V between the legs: plain handles, or signed tickets."""


class VllmManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything of a deployment that must not change without being tested again."""

    engine: str
    handoff: HandoffManifest
    servers: dict[str, ServerManifest]
    """By the gateway's name of each server."""
    hosts: tuple[tuple[str, ...], ...]
    """Servers grouped by the host of their URLs, without its address."""
    fallback: FallbackManifest
    protocol: str
    """Version and schema digest of the connector's control link, or whose handles travel."""
    versions: dict[str, str]
    """Distributions of the gateway."""

    @property
    def digest(self) -> str:
        """Digest of every field."""
        return digest(self)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Paths of all fields that nothing tells."""
        return tuple(_unknown("", msgspec.to_builtins(self)))


class VllmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What /version shows and `baton manifest` writes."""

    manifest: VllmManifest
    digest: str
    receipt: DeploymentReceipt


def _unknown(path: str, tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _unknown(f"{path}.{name}" if path else str(name), value)
    elif tree == UNKNOWN:
        yield path
