"""GGUF to a Hugging Face folder: weights and configuration, in one pass and in float32."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baton.engine.gguf_tokenizer import write_tokenizer
from baton.errors import ModelRefused

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert_gguf(gguf: Path, folder: Path, progress: Callable[[float], None]) -> None:
    """Write `gguf` as config, safetensors, tokenizer and chat template into `folder`.

    Plain Llama files are converted directly; others go through the transformers reader. Raises
    ModelRefused when neither can read the file.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
    except (ValueError, IndexError, OSError) as error:
        raise ModelRefused(f"{gguf}: not a readable GGUF file: {error}") from error
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    if not _is_plain_llama(reader, metadata):
        _convert_with_transformers(gguf, folder)
        progress(1.0)
        return
    from safetensors.numpy import save_file

    heads = int(metadata["llama.attention.head_count"])
    kv_heads = int(metadata.get("llama.attention.head_count_kv", heads))
    tensors: dict[str, NDArray[np.float32]] = {}
    for done, (name, values) in enumerate(_tensors(reader, heads, kv_heads)):
        tensors[name] = values
        progress(0.8 * (done + 1) / len(reader.tensors))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_config(folder, metadata, tensors)
    progress(0.9)
    write_tokenizer(gguf, metadata, folder)
    progress(1.0)


def _is_plain_llama(reader: Any, metadata: dict[str, Any]) -> bool:
    names = {tensor.name for tensor in reader.tensors}
    known = all(_hf_name(name) is not None for name in names)
    scaled = any(name.startswith("llama.rope.scaling") for name in metadata)
    return metadata.get("general.architecture") == "llama" and known and not scaled


def _hf_name(name: str) -> str | None:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    part = name.split(".")
    if len(part) == 4 and part[0] == "blk" and part[2] in _LAYER_NAMES and part[3] == "weight":
        return f"model.layers.{part[1]}.{_LAYER_NAMES[part[2]]}.weight"
    return None


def _tensors(reader: Any, heads: int, kv_heads: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    from gguf.quants import dequantize

    for tensor in reader.tensors:
        name = _hf_name(tensor.name)
        assert name is not None
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if ".attn_q." in tensor.name:
            values = _unpermute(values, heads)
        elif ".attn_k." in tensor.name:
            values = _unpermute(values, kv_heads)
        yield name, np.ascontiguousarray(values)


def _unpermute(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's interleaving of rotary pairs: rows (pair, half) back to (half, pair)."""
    rows, columns = values.shape
    split = values.reshape(heads, rows // heads // 2, 2, columns)
    return split.swapaxes(1, 2).reshape(rows, columns)


def _write_config(
    folder: Path, metadata: dict[str, Any], tensors: dict[str, NDArray[np.float32]]
) -> None:
    heads = int(metadata["llama.attention.head_count"])
    hidden = int(metadata["llama.embedding_length"])
    vocabulary = tensors["model.embed_tokens.weight"].shape[0]
    tokens = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(metadata["llama.feed_forward_length"]),
        "num_hidden_layers": int(metadata["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(metadata.get("llama.attention.key_length", hidden // heads)),
        "vocab_size": int(vocabulary),
        "max_position_embeddings": int(metadata["llama.context_length"]),
        "hidden_act": "silu",
        "rms_norm_eps": float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(metadata.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
        **tokens,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps(tokens, indent=1))


def _convert_with_transformers(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    source, name = str(gguf.parent), gguf.name
    try:
        quantization = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.float32, quantization_config=quantization
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, gguf_file=name)
    except Exception as error:
        raise ModelRefused(
            f"{gguf}: transformers cannot read this GGUF: {error}; "
            "convert it to safetensors and give that folder"
        ) from error
    # Dequantised weights are plain float32, but the model still refuses to be saved as such.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
