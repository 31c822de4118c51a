"""The manifest of vLLM servers: put together as they come up, then what later lives are held to."""

import platform
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from baton.config import BatonConfig
from baton.core.deployment_manifest import (
    DeploymentReceipt,
    FallbackManifest,
    manifest_differences,
)
from baton.core.ids import Direction
from baton.core.layout import ModelIdentity
from baton.core.vllm_manifest import (
    CacheManifest,
    HandoffManifest,
    ServerManifest,
    VllmManifest,
    VllmRecord,
)
from baton.errors import BatonError
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.messages import COMPATIBILITY
from baton.policy.fallback import Fallback
from baton.runtime.versions import CARRYING, nixl_release, versions_of
from baton.runtime.vllm.command import ports_of, server_command
from baton.runtime.vllm.commanded import Commanded, commanded
from baton.runtime.vllm.connector import ROUTE_EPOCH
from baton.runtime.vllm.servers import Server, ServerTable

_RELEASES = ("baton", "torch", "nixl")
_OWN_CLASS = "BatonConnector"
_SWITCH = {"True": "on", "False": "off"}
_HOST_ATTENTION = "CPU_ATTN"
"""Its cache, which our connector moves as it lies, is host memory."""


class ManifestKeeper:
    """Freezes the manifest once every server has been met; what follows moves the receipt only."""

    def __init__(self, config: BatonConfig, servers: ServerTable) -> None:
        self._config = config
        self._servers = servers
        self._identity: ModelIdentity | None = None
        self._met: dict[str, ServerManifest] = {}
        self._manifest: VllmManifest | None = None

    def load(self, identity: ModelIdentity) -> None:
        """Servers that start here load exactly this."""
        self._identity = identity

    def meet(self, server: Server, cache: Mapping[str, str], info: ConnectorInfo | None) -> None:
        """Take up a server's new life, or refuse it.

        `cache` are the labels of its `vllm:cache_config_info`, `info` what its connector says.
        Raises BatonError with every field in which it differs from the frozen manifest.
        """
        found = server_manifest(server, cache, info, self._commanded(server), self._identity)
        if self._manifest is None:
            self._met[server.server_id] = found
            if all(one.server_id in self._met for one in self._servers):
                self._manifest = self._freeze()
            return
        differences = manifest_differences(self._manifest.servers[server.server_id], found)
        if differences:
            lines = "; ".join(str(difference) for difference in differences)
            raise BatonError(
                f"it is not the server of the manifest (digest {self._manifest.digest}): {lines}. "
                "Start it as before, or start the gateway again to serve with what it is now"
            )

    @property
    def record(self) -> VllmRecord | None:
        """What runs now; None until every server has been met once."""
        if self._manifest is None:
            return None
        receipt = DeploymentReceipt(
            manifest_digest=self._manifest.digest,
            route_epoch=ROUTE_EPOCH if self._config.vllm.connector == "baton" else 0,
            worker_epochs={server.server_id: server.epoch for server in self._servers},
        )
        return VllmRecord(manifest=self._manifest, digest=self._manifest.digest, receipt=receipt)

    def _commanded(self, server: Server) -> Commanded:
        config = self._config
        if config.vllm.is_attached:
            return Commanded()
        words = server_command(config, config.model.name, server.role, ports_of(1, 0))
        facts = commanded(words)
        if config.vllm.python:
            return facts
        here = {"nixl": nixl_release(), **versions_of(("torch",))}
        own = {name: release for name, release in here.items() if release}
        return msgspec.structs.replace(facts, server={**own, **facts.server})

    def _freeze(self) -> VllmManifest:
        config = self._config
        own = config.vllm.connector == "baton"
        return VllmManifest(
            engine="vllm",
            handoff=HandoffManifest(
                connector=config.vllm.connector,
                direction=config.vllm.direction if own else Direction.PULL,
                handles="signed tickets" if own else "plain handles",
            ),
            servers={one.server_id: self._met[one.server_id] for one in self._servers},
            hosts=_hosts(self._servers),
            fallback=FallbackManifest(
                modes=(Fallback.REROUTE, Fallback.RECOMPUTE, Fallback.FAIL),
                max_attempts=config.router.max_attempts,
                ttft_budget_ms=config.router.ttft_budget_ms,
            ),
            protocol=COMPATIBILITY.decode() if own else "kv_transfer_params of vLLM",
            versions={
                "python": platform.python_version(),
                **versions_of((*CARRYING, "aiohttp")),
            },
        )


def server_manifest(
    server: Server,
    cache: Mapping[str, str],
    info: ConnectorInfo | None,
    facts: Commanded,
    identity: ModelIdentity | None,
) -> ServerManifest:
    """One server from all that tells of it; its connector knows best, as it sees vLLM's objects."""
    said = {"vllm": server.version, "model": server.model, "root": server.root}
    fields: dict[str, str] = {name: value for name, value in said.items() if value}
    if (caching := cache.get("enable_prefix_caching", "")) in _SWITCH:
        fields["prefix_caching"] = _SWITCH[caching]
    if identity is not None:
        fields |= _hashes(identity)
    fields |= facts.server
    if info is not None:
        fields |= _told(info)
    return ServerManifest(role=server.role, cache_abi=_abi(cache, info, facts), **fields)


def _told(info: ConnectorInfo) -> dict[str, str]:
    told = {
        "vllm": info.facts.vllm_version,
        "connector": _OWN_CLASS,
        "kv_role": info.role,
        "data_plane": info.facts.data_plane,
        "attention_backend": info.facts.attention_backend,
        "prefix_caching": _SWITCH[str(info.facts.prefix_caching)],
        "speculative_decoding": info.facts.speculative or "none",
        **_hashes(info.identity),
        **{name: info.versions[name] for name in _RELEASES if name in info.versions},
    }
    if info.facts.attention_backend == _HOST_ATTENTION:
        told["buffer_device"] = "cpu"
    return told


def _hashes(identity: ModelIdentity) -> dict[str, str]:
    names = ("checkpoint_hash", "tokenizer_hash", "adapter_hash")
    return {name: getattr(identity, name) for name in names}


def _abi(cache: Mapping[str, str], info: ConnectorInfo | None, facts: Commanded) -> CacheManifest:
    if info is not None:
        names = CacheManifest.__struct_fields__
        return CacheManifest(**{name: getattr(info.layout, name) for name in names})
    size, dtype = cache.get("block_size", ""), cache.get("cache_dtype", "")
    known: dict[str, Any] = dict(facts.cache)
    if size.isdigit():
        known["block_size"] = int(size)
    if dtype not in ("", "None", "auto"):  # "auto" is the model's, which nothing tells
        known |= {"dtype_k": dtype, "dtype_v": dtype}
    return CacheManifest(**known)


def _hosts(servers: ServerTable) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for server in servers:
        groups.setdefault(urlsplit(server.url).hostname or "", []).append(server.server_id)
    return tuple(sorted(tuple(group) for group in groups.values()))
