"""Models by name and by file: published totals, names in all their forms, and what is refused."""

import json
from typing import Any

import pytest

from baton.errors import ConfigError
from baton.hardware.model import MODELS, find_model, model_facts

WITH_TOTAL = [fact for fact in model_facts() if "total" in fact]
WITH_ACTIVE = [fact for fact in model_facts() if "active" in fact]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
MIXTURE = LLAMA | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


def test_totals_are_published_for_most_models():
    assert len(WITH_TOTAL) > 70
    assert all(fact["source"] for fact in model_facts())


@pytest.mark.parametrize("fact", WITH_TOTAL, ids=lambda fact: fact["name"])
def test_parameters_are_the_published_total(fact):
    # Kimi's 1.04 trillion is rounded up from 1.03; everything else is within one percent.
    within = 0.015 if fact["name"].startswith("Kimi") else 0.01
    assert MODELS[fact["name"]].num_parameters == pytest.approx(fact["total"], rel=within)


@pytest.mark.parametrize("fact", WITH_ACTIVE, ids=lambda fact: fact["name"])
def test_active_parameters_are_the_published_ones_with_embeddings(fact):
    # Some publishers leave both vocabulary tables out, and round to whole billions.
    model = MODELS[fact["name"]]
    tables = 2 * model.vocab_size * model.model_dim
    rounding = 0.02 * fact["active"] + 0.5e9
    assert fact["active"] - rounding <= model.num_active_parameters
    assert model.num_active_parameters <= fact["active"] + rounding + tables


def test_key_value_bytes_of_a_token():
    assert find_model("Llama-3.1-8B").token_nbytes == 32 * 2 * 8 * 128 * 2
    assert find_model("bloom-176b").token_nbytes == 4_014_080
    assert find_model("OPT-66B").token_nbytes == 64 * 2 * 9216 * 2
    assert find_model("DeepSeek-V3").token_nbytes == 61 * (512 + 64) * 2
    # Only 15 of its 60 layers keep K/V of every token; the others have a state of fixed size.
    recurrent = find_model("Qwen3.5-397B-A17B")
    assert recurrent.token_nbytes == 15 * 2 * 2 * 256 * 2
    assert recurrent.sequence_nbytes > 45 * 64 * 128 * 128 * 4
    windows = find_model("gpt-oss-120b")
    assert windows.token_nbytes == 18 * 2 * 8 * 64 * 2
    assert windows.sequence_nbytes == 18 * 128 * 2 * 8 * 64 * 2


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-70B", "Llama-3.1-70B"),
        ("llama-3.3-70b", "Llama-3.1-70B"),
        ("llama2-70b", "Llama-2-70B"),
        ("Llama-2-70b-hf", "Llama-2-70B"),
        ("facebook/opt-13b", "OPT-13B"),
        ("bloom-176b", "BLOOM-176B"),
        ("zhipuai/GLM-5", "GLM-5"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B"),
        ("smollm2", "SmolLM2-135M"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"),
    ],
)
def test_names_with_owner_and_variant(given, name):
    assert find_model(given) == MODELS[name]


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", 1.0),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", 1.0),
        ("nvidia/DeepSeek-R1-NVFP4", 0.5625),
        ("nvidia/Qwen3-32B-NVFP4", 0.5625),
    ],
)
def test_a_suffix_says_how_linear_layers_are_stored(given, nbytes):
    assert find_model(given).weight_nbytes_per_param == nbytes


def test_quantised_weights_leave_embeddings_in_16_bits():
    plain, narrow = find_model("Llama-3.1-8B"), find_model("Llama-3.1-8B-FP8")
    tables = 2 * 128256 * 4096
    assert plain.weight_nbytes - narrow.weight_nbytes == plain.dense_parameters
    assert narrow.weight_nbytes > plain.dense_parameters + 2 * tables
    # Published sizes: DeepSeek-V3's FP8 checkpoint is 689 GB with its prediction layer of 14 GB,
    # gpt-oss-120b's MXFP4 one is 65 GB, Kimi-K2.5's INT4 one is 595 GB with its vision tower.
    assert find_model("DeepSeek-V3").weight_nbytes == pytest.approx(675e9, rel=0.01)
    assert find_model("gpt-oss-120b").weight_nbytes == pytest.approx(65.2e9, rel=0.01)
    assert find_model("Kimi-K2.5").weight_nbytes == pytest.approx(595e9, rel=0.01)


@pytest.mark.parametrize(
    ("given", "near"),
    [("Lama-3.1-8B", "Llama-3.1-8B"), ("opt_31b", "OPT-13B"), ("qwen/qwen3-33b", "Qwen3-32B")],
)
def test_an_unknown_name_lists_the_nearest(given, near):
    with pytest.raises(ConfigError, match="is not known; nearest: ") as caught:
        find_model(given)
    assert near in str(caught.value)


def test_an_unknown_precision_lists_what_there_is():
    with pytest.raises(ConfigError, match=r"weights in 'fp7': use one of .*fp8"):
        find_model("Llama-3.1-8B").quantised(weights="fp7")


def written(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_and_a_file_give_the_same_shape(tmp_path):
    folder = written(tmp_path, LLAMA)
    shape = find_model(folder)
    assert shape == find_model(folder / "config.json")
    width = 64
    attention = width * (64 + 2 * 32) + 64 * width
    assert shape.dense_parameters == 2 * (attention + 3 * width * 160)
    assert shape.head_dim == 16
    assert shape.embedding_parameters == 2 * 100 * width + 5 * width
    assert shape.token_nbytes == 2 * 2 * 2 * 16 * 2


def test_a_mixture_of_experts_by_hand(tmp_path):
    shape = find_model(written(tmp_path, MIXTURE))
    assert (shape.ffn_dim, shape.num_moe_layers) == (0, 2)
    expert = 3 * 64 * 32
    assert shape.all_expert_parameters == 2 * 8 * expert
    assert shape.num_parameters - shape.num_active_parameters == 2 * 6 * expert


def test_the_text_part_of_a_model_with_several(tmp_path):
    nested = {"model_type": "some_vl", "vision_config": {"hidden_size": 9}, "text_config": LLAMA}
    assert find_model(written(tmp_path, nested)).model_dim == 64


def test_windows_count_only_beside_full_attention(tmp_path):
    kinds = ["sliding_attention", "full_attention"]
    shape = find_model(written(tmp_path, LLAMA | {"layer_types": kinds, "sliding_window": 8}))
    assert (shape.num_window_layers, shape.num_full_layers) == (1, 1)
    alike = find_model(written(tmp_path, LLAMA | {"layer_types": kinds[:1] * 2}))
    assert alike.num_full_layers == 2


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; a whole number"),
        ({"vocab_size": 0}, "vocab_size is 0; at least 1"),
        ({"num_key_value_heads": 3}, "4 heads are no multiple of 3"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"layer_types": ["mamba", "mamba"]}, "layers of type mamba are not known"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for 2 layers"),
        ({"quantization_config": {"quant_method": "gguf"}}, "quant_method 'gguf' is not known"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "experts_per_token is 5; 1 to"),
    ],
)
def test_a_bad_configuration_names_what_is_wrong(tmp_path, changed, text):
    config = {key: value for key, value in (LLAMA | changed).items() if value is not None}
    with pytest.raises(ConfigError, match=text):
        find_model(written(tmp_path, config))


def test_what_is_no_configuration_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="a JSON object is needed"):
        find_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        find_model(tmp_path)
    with pytest.raises(ConfigError, match="cannot read"):
        find_model(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("quantised", "weight", "expert"),
    [
        ({"quant_method": "fp8"}, 1.0, 0.0),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
         2.0, 0.53125),
        ({"quant_method": "compressed-tensors",
          "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}},
          "ignore": ["re:.*self_attn.*"]}, 2.0, 0.5625),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1.0, 0.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625, 0.0),
    ],
)  # fmt: skip
def test_quantised_checkpoints(tmp_path, quantised, weight, expert):
    shape = find_model(written(tmp_path, MIXTURE | {"quantization_config": quantised}))
    assert (shape.weight_nbytes_per_param, shape.expert_nbytes_per_param) == (weight, expert)
    assert shape.widens_weights == (quantised["quant_method"] == "compressed-tensors")
