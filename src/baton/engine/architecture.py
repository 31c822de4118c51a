"""Which models can be served over a paged K/V pool, and the shape of their K/V."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baton.errors import ModelRefused

_LAYER_TYPES = {"full_attention", "sliding_attention"}
_LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that the engine needs."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_len: int


def read_config(path: Path) -> Any:
    """The transformers configuration of a folder, of its text part where it has several."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(str(path))
    except Exception as error:
        raise ModelRefused(f"{path}: transformers cannot read config.json: {error}") from error
    return config.get_text_config(decoder=True)


def describe(config: Any) -> Shape:
    """Shape of the model that `config` describes; raises ModelRefused when it cannot be served."""
    reason = _refusal(config)
    if reason:
        raise ModelRefused(f"{config.model_type}: {reason}")
    try:
        return _shape(config)
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelRefused(
            f"{config.model_type}: its layers have no one K/V shape: {error}"
        ) from error


def _shape(config: Any) -> Shape:
    heads = int(config.num_attention_heads)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "multi_query", False):
        kv_heads = 1
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Shape(
        num_layers=int(config.num_hidden_layers),
        num_kv_heads=int(kv_heads),
        head_dim=int(head_dim),
        vocab_size=int(config.vocab_size),
        max_len=_max_len(config),
    )


def _refusal(config: Any) -> str:
    def get(name: str) -> Any:
        return getattr(config, name, None)

    if get("is_encoder_decoder"):
        return "an encoder-decoder; only decoder-only models are served"
    if get("kv_lora_rank"):
        return "multi-head latent attention (MLA) keeps no separate K and V of one size"
    if get("quantization_config"):
        return "a quantised checkpoint; give float32 or bfloat16 weights"
    strange = sorted(set(get("layer_types") or ()) - _LAYER_TYPES)
    if strange:
        names = ", ".join(strange)
        return f"layers of type {names}; only full and sliding attention have plain K/V"
    if get("num_kv_shared_layers"):
        return "layers that share the K/V of other layers"
    if get("attention_chunk_size"):
        return "chunked attention"
    if get("alibi"):
        return "ALiBi position biases"
    missing = [n for n in ("num_hidden_layers", "num_attention_heads", "vocab_size")
               if get(n) is None]  # fmt: skip
    if missing:
        return f"its configuration has no {', '.join(missing)}"
    return ""


def _max_len(config: Any) -> int:
    """Longest sequence whose rotary embedding does not depend on the batch around it."""
    limit = int(getattr(config, "max_position_embeddings", None) or 4096)
    rope = getattr(config, "rope_parameters", None) or {}
    entries = [rope] if "rope_type" in rope else [v for v in rope.values() if isinstance(v, dict)]
    for entry in entries:
        if entry.get("rope_type") in _LENGTH_DEPENDENT_ROPE:
            original = entry.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            limit = min(limit, int(original or limit))
    return limit


def load_model(path: Path, config: Any, dtype: Any, device: str) -> Any:
    """The transformers model of a folder, in evaluation mode, with plain eager attention."""
    import transformers

    name = config.model_type
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path), dtype=dtype, attn_implementation="eager", local_files_only=True
        )
    except Exception as error:
        raise ModelRefused(f"{name}: transformers cannot load it from {path}: {error}") from error
    if not getattr(model, "_supports_attention_backend", False):
        raise ModelRefused(
            f"{name}: its transformers model does not route attention through AttentionInterface"
        )
    return model.to(device).eval()
