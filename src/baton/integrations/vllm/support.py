"""The pinned support matrix: what a connector was tried with; anything else is refused by name."""

import msgspec

from baton.errors import ConfigError

VLLM_VERSIONS = ("0.32",)
"""Major and minor versions whose connector interface this was written against."""
ATTENTION_BACKENDS = ("CPU_ATTN",)
CACHE_ORDERS = ("LBHNC", "LBNHC", "BLHNC", "BLNHC")
"""vLLM's names of orders in which a block of one layer lies in one piece: layers, blocks, heads,
slots (N), content."""
HEAD_ORDERS = ("LBHNC", "BLHNC")
"""Those in which each head of a block lies in one piece, so that heads can go to other ranks."""
DTYPES = ("float32", "bfloat16", "float16")
DIRECTIONS = ("pull", "push")


class SupportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether bytes of one engine mean the same in another, besides the layout."""

    vllm_version: str
    attention_backend: str
    cache_order: str
    """Axes of the whole cache memory, slowest first, by vLLM's letters."""
    dtype: str
    block_size: int
    num_kv_heads: int
    """Of the whole model, before any rank gets its share."""
    tp_size: int = 1
    pp_size: int = 1
    prefix_caching: bool = True
    speculative: str = ""
    """Method of speculative decoding, or ""."""
    num_cache_groups: int = 1
    """More than one is a hybrid cache: windows, states or several sizes side by side."""
    data_plane: str = "nixl"
    protocol: int = 1


def defects(facts: SupportFacts) -> list[str]:
    """Why this engine cannot be a member, one sentence each: what, its value, the remedy."""
    checks = [
        (
            facts.vllm_version.rpartition(".")[0] in VLLM_VERSIONS,
            f"vllm_version is {facts.vllm_version!r}; install one of "
            f"{', '.join(version + '.x' for version in VLLM_VERSIONS)}",
        ),
        (
            facts.attention_backend in ATTENTION_BACKENDS,
            f"attention_backend is {facts.attention_backend!r}; use one of {ATTENTION_BACKENDS}",
        ),
        (
            facts.cache_order in CACHE_ORDERS,
            f"cache_order is {facts.cache_order!r}; this connector knows {CACHE_ORDERS}",
        ),
        (facts.dtype in DTYPES, f"dtype is {facts.dtype!r}; set --dtype to one of {DTYPES}"),
        (
            facts.num_cache_groups == 1,
            f"num_cache_groups is {facts.num_cache_groups}: hybrid caches are not supported; "
            "serve a model with one kind of attention",
        ),
        (
            not facts.speculative,
            f"speculative is {facts.speculative!r}: draft state does not move; remove "
            "--speculative-config",
        ),
        (
            facts.pp_size == 1,
            f"pp_size is {facts.pp_size}; set --pipeline-parallel-size 1",
        ),
    ]
    return [sentence for holds, sentence in checks if not holds]


def require_supported(facts: SupportFacts) -> None:
    """Raise ConfigError with everything that is in the way at once."""
    found = defects(facts)
    if found:
        raise ConfigError("BatonConnector cannot run here: " + "; ".join(found))


_EQUAL = {
    "protocol": "install the same kvbaton on both",
    "vllm_version": "install the same vLLM on both: its kernels decide what a cache block holds",
    "attention_backend": "set the same attention backend on both",
    "cache_order": "let both choose the same K/V cache layout",
    "dtype": "set the same --dtype and --kv-cache-dtype on both",
    "block_size": "set the same --block-size on both",
    "data_plane": "set the same data_plane on both",
    "num_kv_heads": "serve the same checkpoint on both",
}
"""What both sides must have in common, and the remedy where they have not."""


def pairing_defect(source: SupportFacts, destination: SupportFacts) -> str:
    """The first reason why these two cannot exchange cache blocks, or ""."""
    for field, remedy in _EQUAL.items():
        ours, theirs = getattr(source, field), getattr(destination, field)
        if ours != theirs:
            return f"{field}: source {ours!r}, destination {theirs!r}; {remedy}"
    if source.tp_size != destination.tp_size and source.cache_order not in HEAD_ORDERS:
        return (
            f"tp_size: source {source.tp_size!r}, destination {destination.tp_size!r}, with "
            f"cache_order {source.cache_order!r}; use one of {HEAD_ORDERS}, where the heads of a "
            "block lie one after the other, or set the same --tensor-parallel-size on both"
        )
    for side, facts in (("source", source), ("destination", destination)):
        heads, tp_size = facts.num_kv_heads, facts.tp_size
        if heads % tp_size and tp_size % heads:
            return (
                f"tp_size: {tp_size} at the {side} with {heads} K/V heads; set a "
                "--tensor-parallel-size that divides them, or is a multiple of them"
            )
    return ""
