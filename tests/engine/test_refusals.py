"""Models that cannot be served exactly are refused by name, and bad batches before any write."""

import pytest
import torch
import transformers
from engine_models import COMMON, item, load, prompt, save_family

from baton.core.work import Batch
from baton.engine.engine import Engine
from baton.engine.plain import PlainForward
from baton.errors import ConfigError, LocalProtocolError, ModelRefused

SMALL = {key: value for key, value in COMMON.items() if key != "head_dim"}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
       "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
       "first_k_dense_replace": 3, "n_group": 1, "topk_group": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("class_name", "extra", "reason"),
    [
        ("DeepseekV3Config", MLA, "deepseek_v3.*MLA"),
        ("FalconConfig", {}, "falcon.*AttentionInterface"),
        ("StableLmConfig", {}, "stablelm.*AttentionInterface"),
        ("Qwen3NextConfig", {"num_hidden_layers": 4, "linear_num_key_heads": 2,
                             "linear_num_value_heads": 2, "num_experts": 2,
                             "num_experts_per_tok": 1}, "qwen3_next.*linear_attention"),
        ("MambaConfig", {}, "mamba"),
        ("BertConfig", {"is_decoder": True}, "layer 0 has K"),
        ("T5Config", {}, "t5.*encoder-decoder"),
    ],
)  # fmt: skip
def test_unservable_models(class_name, extra, reason, tmp_path):
    config = getattr(transformers, class_name)(**(SMALL | extra))
    family = (
        transformers.AutoModelForSeq2SeqLM
        if config.is_encoder_decoder
        else transformers.AutoModelForCausalLM
    )
    family.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match=f"(?s){reason}"):
        load(tmp_path)


def test_window_by_mask_alone_is_refused(tmp_path, monkeypatch):
    """The self-test is shorter than a usual window; a layer that hides it must not pass."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention

    forward = Gemma2Attention.forward

    def hide(self, *arguments, **named):
        self.sliding_window = None
        return forward(self, *arguments, **named)

    monkeypatch.setattr(Gemma2Attention, "forward", hide)
    with pytest.raises(ModelRefused, match="does not pass on"):
        load(save_family("gemma2", tmp_path, sliding_window=400))


def test_wrong_mathematics_is_caught(tmp_path, monkeypatch):
    """A forward that forgets one thing gives other logits, and the self-test says so."""
    folder = save_family("mistral", tmp_path)
    take = PlainForward._take_layer

    def forgetful(self, layer, *arguments):
        layer.self_attn.scaling *= 1.05
        return take(self, layer, *arguments)

    monkeypatch.setattr(PlainForward, "_take_layer", forgetful)
    with pytest.raises(ModelRefused, match="self-test failed: paged logits differ"):
        load(folder)


def test_self_test_runs_after_a_load_without_it(tiny):
    engine = load(tiny, self_test=False)
    engine.self_test()


def test_device_and_length_limits(tiny):
    with pytest.raises(ConfigError, match="max_model_len 4096 is above"):
        load(tiny, max_model_len=4096)
    with pytest.raises(ConfigError, match="device 'nonsense'"):
        load(tiny, device="nonsense")
    assert load(tiny, max_model_len=100, self_test=False).info.max_model_len == 100


def test_pool_bounds(tiny_engine):
    layout = tiny_engine.info.layout
    with pytest.raises(ConfigError, match="need"):
        tiny_engine.bind_pool(memoryview(bytearray(layout.bytes_per_block)), 2)
    with pytest.raises(ConfigError, match="read-only: True"):
        tiny_engine.bind_pool(memoryview(bytes(layout.bytes_per_block)), 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([1, 2, 300], 0, 3, [0], 3), "token id"),
        (([1] * 20, 0, 20, [0], 20), "do not hold"),
        (([1] * 20, 0, 20, [0, 96], 20), "block id"),
        (([1], 0, 0, [0], 1), "no rows"),
        (([1], 0, 1, [0], 0), "no prompt"),
    ],
)
def test_malformed_items(engine, arguments, reason):
    before = engine.pool.tensor.clone()
    bad, good = item(*arguments, name="bad"), item([5, 6], 0, 2, [1], 2)
    with pytest.raises(LocalProtocolError, match=f"'bad'.*{reason}"):
        engine.execute(Batch(batch_id=1, items=(good, bad)))
    torch.testing.assert_close(engine.pool.tensor, before, equal_nan=True)


def test_failure_while_computing_is_a_result(engine):
    """Stale NaN inside the visible rows: no token is made up from it."""
    result = engine.execute(Batch(batch_id=1, items=(item(prompt(9, 1), 8, 9, [0], 1),)))
    assert "not finite" in result.error
    assert result.sampled == ()


def test_without_a_pool(tiny):
    engine = load(tiny, self_test=False)
    bare = Engine(engine._built)
    with pytest.raises(LocalProtocolError, match="bind_pool"):
        bare.execute(Batch(batch_id=1, items=()))
