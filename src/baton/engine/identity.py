"""What a model folder is: content digests that two workers compare before they share K/V."""

import json
from pathlib import Path
from typing import Any

import xxhash

from baton.core.digest import digest
from baton.core.layout import ModelIdentity

_CHUNK_NBYTES = 1 << 24
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_MASK_FIELDS = ("sliding_window", "layer_types", "use_sliding_window", "max_window_layers",
                "attn_logit_softcapping", "query_pre_attn_scalar", "is_causal")  # fmt: skip
_POSITION_FIELDS = ("rope_parameters", "rope_scaling", "rope_theta", "head_dim",
                    "max_position_embeddings", "partial_rotary_factor",
                    "no_rope_layers")  # fmt: skip


def identify(path: Path, config: Any, name: str) -> ModelIdentity:
    """Identity of the model in `path`; every byte of its weights is read."""
    resolved = config.to_dict()
    return ModelIdentity(
        model=name,
        checkpoint_hash=checkpoint_hash(path),
        tokenizer_hash=digest(
            [(n, file_hash(path / n)) for n in _TOKENIZER_FILES if (path / n).exists()]
        ),
        position_policy_hash=digest({f: resolved.get(f) for f in _POSITION_FIELDS}),
        mask_policy_hash=digest({f: resolved.get(f) for f in _MASK_FIELDS}),
    )


def checkpoint_hash(path: Path) -> str:
    """Digest of the weights and the configuration in `path`."""
    weights = sorted(path.glob("*.safetensors"))
    fields = json.loads((path / "config.json").read_text())
    # How a file was saved is not what it holds.
    for noise in ("transformers_version", "_name_or_path", "torch_dtype", "dtype"):
        fields.pop(noise, None)
    return digest([fields, [(file.name, file_hash(file)) for file in weights]])


def file_hash(path: Path) -> str:
    """128-bit content hash of a file."""
    state = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_NBYTES):
            state.update(chunk)
    return str(state.hexdigest())
