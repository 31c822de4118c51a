"""What a vLLM configuration says of a connector: facts for the matrix, layout, identity.

Reads attributes of vLLM's objects and imports none of them.
"""

from collections.abc import Sequence
from typing import Any

from baton import __version__
from baton.core.digest import digest
from baton.core.layout import KVLayout
from baton.errors import ConfigError
from baton.integrations.vllm.identity import model_identity
from baton.integrations.vllm.info import ConnectorInfo, Member
from baton.integrations.vllm.memory import LayerView
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.support import SupportFacts
from baton.runtime.versions import nixl_release, versions_of


def support_facts(
    config: Any, cache_config: Any, settings: Settings, *, version: str, backend: str
) -> SupportFacts:
    """The facts of one server. `config` is vLLM's, `cache_config` its KVCacheConfig."""
    parallel, speculative = config.parallel_config, config.speculative_config
    return SupportFacts(
        vllm_version=version,
        attention_backend=backend,
        cache_order=str(cache_config.kv_cache_layout),
        dtype=_dtype(config),
        block_size=config.cache_config.block_size,
        num_kv_heads=config.model_config.get_total_num_kv_heads(),
        tp_size=parallel.tensor_parallel_size,
        pp_size=parallel.pipeline_parallel_size,
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
        speculative=str(speculative.method) if speculative is not None else "",
        num_cache_groups=len(cache_config.kv_cache_groups),
        data_plane=settings.data_plane,
    )


def _dtype(config: Any) -> str:
    """Of the cache; `auto` is the model's."""
    chosen = config.cache_config.cache_dtype
    return str(config.model_config.dtype if chosen == "auto" else chosen).removeprefix("torch.")


def connector_info(
    config: Any,
    facts: SupportFacts,
    settings: Settings,
    layers: Sequence[LayerView],
    *,
    epoch: int,
    rank: int,
) -> ConnectorInfo:
    """Who one rank is. `layers` are those of its cache."""
    model, parallel = config.model_config, config.parallel_config
    endpoints = tuple(
        f"tcp://{_bracketed(settings.host)}:{settings.port + other}"
        for other in range(parallel.tensor_parallel_size)
    )
    layout = KVLayout(
        num_layers=len(layers),
        num_kv_heads=model.get_num_kv_heads(parallel),
        head_dim=model.get_head_size(),
        block_size=facts.block_size,
        dtype_k=facts.dtype,
        dtype_v=facts.dtype,
        axis_order=f"vllm {facts.attention_backend} {facts.cache_order}",
        tp_size=parallel.tensor_parallel_size,
        pp_size=parallel.pipeline_parallel_size,
    )
    return ConnectorInfo(
        member=Member(worker_id=settings.worker_id, epoch=epoch, endpoints=endpoints),
        role=str(config.kv_transfer_config.kv_role),
        num_blocks=layers[0].shape[0],
        max_model_len=model.max_model_len,
        layout=layout,
        identity=model_identity(
            model.model, model.served_model_name, str(model.revision or ""), _adapters(config)
        ),
        facts=facts,
        rank=rank,
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    found = {"baton": __version__, "nixl": nixl_release(), **versions_of(("torch",))}
    return {name: release for name, release in found.items() if release}


def _adapters(config: Any) -> str:
    """Adapters change what rows mean and are named, not hashed: they are not supported."""
    if config.lora_config is not None:
        raise ConfigError("lora_config is set; K/V of adapters is not handed over: remove --lora")
    return digest(str(getattr(config.model_config, "rope_scaling", None) or ""))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
