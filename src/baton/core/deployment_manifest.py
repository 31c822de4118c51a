"""What a deployment is made of, frozen and hashed (specification 0x0FB, 0x0FF).

A configuration that is copied to another release can change roles, layouts or error recovery
without a word. The manifest says what really runs, so that a start can be held to what was tested.
"""

from collections.abc import Iterator

import msgspec

from baton.core.digest import digest
from baton.core.layout import KVLayout, ModelIdentity


class PoolManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The workers of one role: how many, and the K/V tensor ABI that they share."""

    role: str
    num_workers: int
    cache_abi: KVLayout


class ConnectorManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What moves K/V between the two phases, and how."""

    name: str
    """baton for the own engine, else the class that the engine loaded."""
    direction: str
    """push or pull."""
    schedule: str
    backends: tuple[str, ...]
    """Of the data plane, as shm or nixl/UCX. Which lane one takes is seen live, in /metrics."""
    buffer_device: str
    control: str
    """How control messages and rights travel: ipc, or tcp (encrypted and authenticated)."""
    checksum: bool


class FeatureManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of an engine decides whether two of its instances may share K/V."""

    dtype: str
    attention_backend: str
    prefix_caching: str
    speculative_decoding: str = "none"
    deterministic: bool = False


class FallbackManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows when a handoff fails, in this order, within the bounds."""

    modes: tuple[str, ...]
    max_attempts: int
    ttft_budget_ms: int


class DeploymentManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything of a deployment that must not change without being tested again.

    What changes while it runs (route epoch, lives of workers) is the receipt's, not its.
    """

    model: ModelIdentity
    """With the hashes of checkpoint, tokenizer and adapter."""
    engine: str
    connector: ConnectorManifest
    features: FeatureManifest
    pools: tuple[PoolManifest, ...]
    hosts: tuple[tuple[str, ...], ...]
    """Workers grouped by the host that they share; addresses are of a day, groups of a design."""
    fallback: FallbackManifest
    protocol: str
    """Version and schema digest of the control channel."""
    versions: dict[str, str]
    """Distributions whose release can change a bit of the answer or a byte on the wire."""

    @property
    def digest(self) -> str:
        """Digest of every field."""
        return digest(self)


class DeploymentReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running deployment stands; binds the manifest by its digest, never the reverse."""

    manifest_digest: str
    route_epoch: int
    worker_epochs: dict[str, int]


class DeploymentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What /version shows and `baton manifest` writes."""

    manifest: DeploymentManifest
    digest: str
    receipt: DeploymentReceipt


class Difference(msgspec.Struct, frozen=True):
    """One field of two manifests."""

    field: str
    expected: object
    found: object

    def __str__(self) -> str:
        """As one line says it."""
        return f"{self.field} is {_shown(self.found)} and must be {_shown(self.expected)}"


def manifest_differences(expected: msgspec.Struct, found: msgspec.Struct) -> tuple[Difference, ...]:
    """Every leaf that differs, in the order of the manifest; () where the digests are equal.

    Both are manifests of the same kind, or the same part of two.
    """
    trees = msgspec.to_builtins(expected), msgspec.to_builtins(found)
    return tuple(_differences("", *trees))


def _differences(path: str, expected: object, found: object) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in (*expected, *(name for name in found if name not in expected)):
            place = f"{path}.{name}" if path else str(name)
            yield from _differences(place, expected.get(name), found.get(name))
    elif _are_pools(expected, found):
        yield from _differences(path, _by_role(expected), _by_role(found))
    elif expected != found:
        yield Difference(path, expected, found)


def _are_pools(*values: object) -> bool:
    return all(
        isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value)
        for value in values
    )


def _by_role(pools: object) -> dict[str, object]:
    assert isinstance(pools, list | tuple)
    return {str(pool["role"]): pool for pool in pools}


def _shown(value: object) -> str:
    return "absent" if value is None else msgspec.json.encode(value).decode()
