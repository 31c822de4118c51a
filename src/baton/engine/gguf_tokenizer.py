"""The tokenizer inside a GGUF file as tokenizer.json, tokenizer_config.json and chat template."""

import json
from pathlib import Path
from typing import Any

_CONTROL = 3
"""GGUF token type of special tokens."""


def write_tokenizer(gguf: Path, metadata: dict[str, Any], folder: Path) -> None:
    """Write the fast tokenizer and chat template that `metadata` of `gguf` describes.

    Byte-level BPE with SmolLM's splitting is built directly; any other kind goes through the
    transformers reader.
    """
    prefix = "tokenizer.ggml."
    known = metadata.get(prefix + "model") == "gpt2" and metadata.get(prefix + "pre") == "smollm"
    if known:
        _write_byte_level(metadata, folder)
    else:
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name
        )
        tokenizer.save_pretrained(folder)
    template = metadata.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template)


def _write_byte_level(metadata: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    prefix = "tokenizer.ggml."
    tokens: list[str] = metadata[prefix + "tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata[prefix + "merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        token
        for token, kind in zip(tokens, metadata[prefix + "token_type"], strict=True)
        if kind == _CONTROL
    ]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(metadata["llama.context_length"]),
        "clean_up_tokenization_spaces": False,
    }
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    for ggml, huggingface in names.items():
        index = metadata.get(f"{prefix}{ggml}_token_id")
        if index is not None:
            config[f"{huggingface}_token"] = tokens[index]
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
