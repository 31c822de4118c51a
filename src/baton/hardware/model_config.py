"""Reads a model's shape from the `config.json` of its published checkpoint."""

from collections.abc import Mapping
from typing import Any

from baton.errors import ConfigError
from baton.hardware.model_shape import PRECISIONS, LinearAttention, ModelShape

_UNGATED = {"opt", "gpt2", "bloom", "falcon", "gpt_neox", "gptj", "refinedweb", "refinedwebmodel"}
_TIED = {"opt", "gpt2", "bloom", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text"}
_BIASED = {"opt", "gpt2", "bloom", "gpt_neox"}
_QUANTISED = {"fp8": "fp8", "mxfp4": "mxfp4", "awq": "int4", "gptq": "int4", "modelopt": "nvfp4"}
_ATTENTION_TYPES = {
    "full_attention", "sliding_attention", "linear_attention", "chunked_attention",
}  # fmt: skip


def shape_of(config: Mapping[str, Any], name: str, source: str = "") -> ModelShape:
    """From the parsed JSON; of a model with several parts its text part. Raises ConfigError."""
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**{k: v for k, v in config.items() if k == "quantization_config"}, **text}
    reader = _Reader(config, name)
    if reader.flag("is_encoder_decoder"):
        raise ConfigError(f"{name}: an encoder-decoder; only decoder-only models are known")
    num_layers = reader.number("num_hidden_layers", "n_layer", "num_layers")
    d = reader.number("hidden_size", "n_embd", "d_model")
    heads = reader.number("num_attention_heads", "n_head")
    kind = reader.text("model_type").lower()
    is_latent = reader.number("kv_lora_rank", default=0) > 0
    attention = _latent(reader) if is_latent else _heads(reader, kind, d, heads)
    values: dict[str, Any] = {
        "name": name,
        "num_layers": num_layers,
        "model_dim": d,
        "num_heads": heads,
        "vocab_size": reader.number("vocab_size"),
        "is_gated": kind not in _UNGATED,
        "num_positions": _positions(reader, kind),
        "ties_embeddings": reader.flag("tie_word_embeddings", kind in _TIED),
        "has_bias": kind in _BIASED,
        "has_output_gate": reader.flag("attn_output_gate"),
        "source": source,
    }
    values |= attention | _ffn(reader, kind, d, num_layers)
    values |= _layer_types(reader, num_layers) | _precision(reader)
    return ModelShape(**values)


class _Reader:
    """Fields by any of their names; what is missing is named with the file."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config, self.name = config, name

    def number(self, *keys: str, default: int | None = None) -> int:
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"{self.name}: {key} is {value!r}; a whole number is needed")
            return value
        if default is None:
            raise ConfigError(f"{self.name}: its configuration has no {' or '.join(keys)}")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.config.get(key)
        return default if value is None else bool(value)

    def text(self, key: str) -> str:
        return str(self.config.get(key) or "")


def _heads(reader: _Reader, kind: str, d: int, heads: int) -> dict[str, int]:
    """Multi-head, grouped and multi-query attention."""
    kv = reader.number("num_key_value_heads", "num_kv_heads", default=0)
    if kind in {"falcon", "refinedweb", "refinedwebmodel"}:
        if not reader.flag("new_decoder_architecture"):
            kv = 1 if reader.flag("multi_query", True) else heads
    elif reader.flag("multi_query"):
        kv = 1
    head_dim = reader.number("head_dim", "kv_channels", default=0) or d // max(heads, 1)
    return {"num_kv_heads": kv or heads, "head_dim": head_dim}


def _latent(reader: _Reader) -> dict[str, int]:
    """Multi-head latent attention, with or without a sparse index."""
    return {
        "num_kv_heads": 1,
        "head_dim": reader.number("qk_nope_head_dim"),
        "latent_dim": reader.number("kv_lora_rank"),
        "rope_dim": reader.number("qk_rope_head_dim"),
        "q_latent_dim": reader.number("q_lora_rank", default=0),
        "value_dim": reader.number("v_head_dim"),
        "index_dim": reader.number("index_head_dim", default=0),
        "index_heads": reader.number("index_n_heads", default=0),
        "sparse_tokens": reader.number("index_topk", default=0),
    }


def _ffn(reader: _Reader, kind: str, d: int, num_layers: int) -> dict[str, int]:
    ffn = reader.number("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", default=4 * d)
    if kind == "qwen":
        ffn //= 2  # the first Qwen counts gate and up projection together
    experts = reader.number("n_routed_experts", "num_local_experts", "num_experts", default=0)
    if not experts:
        return {"ffn_dim": ffn}
    expert_dim = reader.number("moe_intermediate_size", default=ffn)
    dense = reader.number("first_k_dense_replace", default=0)
    dense += len(reader.config.get("mlp_only_layers") or ())
    step = reader.number("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    if step > 1:
        dense = num_layers - num_layers // step
    return {
        "ffn_dim": reader.number("dense_intermediate_size", "intermediate_size_mlp", default=ffn)
        if dense
        else 0,
        "num_experts": experts,
        "experts_per_token": reader.number(
            "num_experts_per_tok", "num_experts_per_token", "experts_per_token"
        ),
        "expert_dim": expert_dim,
        "num_shared_experts": _shared(reader, kind, expert_dim),
        "num_dense_layers": dense,
    }


def _shared(reader: _Reader, kind: str, expert_dim: int) -> int:
    if kind.startswith("llama4"):
        return 1
    if count := reader.number("n_shared_experts", "num_shared_experts", default=0):
        return count
    width = reader.number("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
    if width % expert_dim:
        raise ConfigError(
            f"{reader.name}: a shared expert of {width} is no multiple of experts of {expert_dim}"
        )
    return width // expert_dim


def _layer_types(reader: _Reader, num_layers: int) -> dict[str, Any]:
    """Windows and recurrent layers among full attention; a list of one kind alone is full."""
    kinds = [str(one) for one in reader.config.get("layer_types") or ()]
    if strange := sorted(set(kinds) - _ATTENTION_TYPES):
        raise ConfigError(f"{reader.name}: layers of type {', '.join(strange)} are not known")
    if kinds and len(kinds) != num_layers:
        raise ConfigError(f"{reader.name}: {len(kinds)} layer_types for {num_layers} layers")
    found: dict[str, Any] = {}
    windows = kinds.count("sliding_attention")
    size = reader.number("sliding_window", default=0)
    if 0 < windows < num_layers and size:
        found |= {"num_window_layers": windows, "window_tokens": size}
    if recurrent := kinds.count("linear_attention"):
        found["linear"] = LinearAttention(
            num_layers=recurrent,
            num_key_heads=reader.number("linear_num_key_heads"),
            key_dim=reader.number("linear_key_head_dim"),
            num_value_heads=reader.number("linear_num_value_heads"),
            value_dim=reader.number("linear_value_head_dim"),
            conv_size=reader.number("linear_conv_kernel_dim", default=4),
        )
    return found


def _positions(reader: _Reader, kind: str) -> int:
    if kind == "opt":
        return reader.number("max_position_embeddings") + 2
    return reader.number("n_positions", "n_ctx", default=1024) if kind == "gpt2" else 0


def _precision(reader: _Reader) -> dict[str, float | bool]:
    """Of the published weights; what a quantised checkpoint leaves alone is in 16 bits."""
    quantised = reader.config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        dtype = reader.text("dtype") or reader.text("torch_dtype") or "bfloat16"
        return {"weight_nbytes_per_param": PRECISIONS.get(dtype, 2.0)}
    method = str(quantised.get("quant_method") or "")
    if method == "compressed-tensors":
        return _compressed(reader, quantised)
    if method == "modelopt" and "FP8" in str(quantised.get("quant_algo")).upper():
        method = "fp8"
    if method not in _QUANTISED:
        known = ", ".join([*_QUANTISED, "compressed-tensors"])
        raise ConfigError(f"{reader.name}: quant_method {method!r} is not known; known: {known}")
    precision = _QUANTISED[method]
    return _stored(quantised, PRECISIONS[precision], widens=precision == "int4")


def _stored(
    quantised: Mapping[str, Any], nbytes: float, *, widens: bool
) -> dict[str, float | bool]:
    part = "expert" if _leaves_attention(quantised) else "weight"
    return {f"{part}_nbytes_per_param": nbytes, "widens_weights": widens}


def _leaves_attention(quantised: Mapping[str, Any]) -> bool:
    kept = [*(quantised.get("modules_to_not_convert") or ()), *(quantised.get("ignore") or ())]
    return any("*" in str(one) and "self_attn" in str(one) and "norm" not in one for one in kept)


def _compressed(reader: _Reader, quantised: Mapping[str, Any]) -> dict[str, float | bool]:
    groups = quantised.get("config_groups")
    first: Mapping[str, Any] = {}
    if isinstance(groups, Mapping) and groups:
        first = next(iter(groups.values()))
    weights = first.get("weights") or {}
    bits, group = weights.get("num_bits"), weights.get("group_size") or 0
    if not isinstance(bits, int):
        raise ConfigError(f"{reader.name}: quantization_config has no weights.num_bits")
    nbytes = bits / 8 + (2 / group if group > 0 else 0.0)
    return _stored(quantised, nbytes, widens=not first.get("input_activations"))
