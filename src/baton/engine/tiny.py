"""The tiny model: seeded random Llama weights and a real byte-level tokenizer, ready at once."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HIDDEN_SIZE = 64
NUM_LAYERS = 4
NUM_HEADS = 4
NUM_KV_HEADS = 2
HEAD_DIM = 16
INTERMEDIATE_SIZE = 160
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny(folder: Path, seed: int = 20250717) -> None:
    """Write config, weights, tokenizer and chat template of the tiny model into `folder`."""
    from safetensors.numpy import save_file

    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INTERMEDIATE_SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 256,
        "eos_token_id": [257, 259],
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    generation = {"bos_token_id": 256, "eos_token_id": [257, 259]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1))
    _write_tokenizer(folder)


def _weights(seed: int) -> dict[str, NDArray[np.float32]]:
    """Random weights whose logits spread over several units, so greedy output keeps moving."""
    random = np.random.Generator(np.random.Philox(seed))

    def matrix(rows: int, columns: int, gain: float) -> NDArray[np.float32]:
        scale = gain / np.sqrt(columns)
        values: NDArray[np.float64] = random.standard_normal((rows, columns)) * scale
        return values.astype(np.float32)

    kv_width, q_width = NUM_KV_HEADS * HEAD_DIM, NUM_HEADS * HEAD_DIM
    tensors = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, HIDDEN_SIZE, 8.0)}
    for i in range(NUM_LAYERS):
        prefix = f"model.layers.{i}."
        tensors |= {
            prefix + "self_attn.q_proj.weight": matrix(q_width, HIDDEN_SIZE, 2.0),
            prefix + "self_attn.k_proj.weight": matrix(kv_width, HIDDEN_SIZE, 2.0),
            prefix + "self_attn.v_proj.weight": matrix(kv_width, HIDDEN_SIZE, 1.5),
            prefix + "self_attn.o_proj.weight": matrix(HIDDEN_SIZE, q_width, 1.5),
            prefix + "mlp.gate_proj.weight": matrix(INTERMEDIATE_SIZE, HIDDEN_SIZE, 1.5),
            prefix + "mlp.up_proj.weight": matrix(INTERMEDIATE_SIZE, HIDDEN_SIZE, 1.5),
            prefix + "mlp.down_proj.weight": matrix(HIDDEN_SIZE, INTERMEDIATE_SIZE, 1.5),
            prefix + "input_layernorm.weight": np.ones(HIDDEN_SIZE, np.float32),
            prefix + "post_attention_layernorm.weight": np.ones(HIDDEN_SIZE, np.float32),
        }
    tensors["model.norm.weight"] = np.ones(HIDDEN_SIZE, np.float32)
    tensors["lm_head.weight"] = matrix(VOCAB_SIZE, HIDDEN_SIZE, 2.0)
    return tensors


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte value in byte-level tokenizers."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(value) if value in printable else chr(next(spare)) for value in range(256)]


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {character: value for value, character in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|eos|>",
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
