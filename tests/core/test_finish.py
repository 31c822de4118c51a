"""When a request is complete: one rule for whoever decodes and whoever resumes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.finish import finish_reason
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.request import Request, SamplingParams, Token

EOS, STOP, OTHER = 2, 7, 5
MODEL = ModelInfo(
    name="toy",
    max_model_len=20,
    vocab_size=100,
    eos_token_ids=(EOS, 3),
    identity=ModelIdentity(model="toy", checkpoint_hash="c", tokenizer_hash="t"),
    layout=KVLayout(num_layers=1, num_kv_heads=1, head_dim=1, block_size=1),
)


def reason(*token_ids: int, prompt: int = 4, **sampling) -> str:
    request = Request(
        request_id="r",
        prompt_token_ids=(OTHER,) * prompt,
        sampling=SamplingParams(**{"max_tokens": 8, **sampling}),
    )
    outputs = [Token(index=i, token_id=t) for i, t in enumerate(token_ids)]
    return finish_reason(request, outputs, MODEL)


@pytest.mark.parametrize(
    ("token_ids", "sampling", "expected"),
    [
        ((), {}, ""),
        ((OTHER,), {}, ""),
        ((EOS,), {}, "stop"),
        ((OTHER, 3), {}, "stop"),
        ((EOS, OTHER), {}, ""),
        ((EOS,), {"ignore_eos": True}, ""),
        ((STOP,), {}, ""),
        ((STOP,), {"stop_token_ids": (STOP,)}, "stop"),
        ((STOP,), {"stop_token_ids": (STOP,), "ignore_eos": True}, "stop"),
        ((EOS,), {"min_tokens": 2}, ""),
        ((STOP,), {"min_tokens": 2, "stop_token_ids": (STOP,)}, ""),
        ((OTHER, EOS), {"min_tokens": 2}, "stop"),
        ((OTHER,), {"max_tokens": 1}, "length"),
        ((EOS,), {"max_tokens": 1}, "stop"),
        ((EOS,), {"max_tokens": 1, "ignore_eos": True}, "length"),
        ((OTHER,) * 7, {}, ""),
        ((OTHER,) * 8, {}, "length"),
    ],
)
def test_rule(token_ids, sampling, expected):
    assert reason(*token_ids, **sampling) == expected


def test_the_context_length_ends_a_request_before_its_token_limit():
    assert reason(OTHER, prompt=18) == ""
    assert reason(OTHER, prompt=19) == "length"
    assert reason(OTHER, OTHER, prompt=18) == "length"


def test_a_token_limit_wins_over_a_minimum_that_exceeds_it():
    assert reason(OTHER, max_tokens=1, min_tokens=5) == "length"


@given(
    st.lists(st.sampled_from([EOS, STOP, OTHER]), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(0, 12),
    st.booleans(),
)
def test_generation_always_ends_within_its_limit_and_only_its_last_token_decides(
    token_ids, max_tokens, min_tokens, ignore_eos
):
    sampling = {"max_tokens": max_tokens, "min_tokens": min_tokens, "ignore_eos": ignore_eos}
    found = reason(*token_ids, **sampling)
    assert found or len(token_ids) < max_tokens
    assert found == reason(*[OTHER] * (len(token_ids) - 1), token_ids[-1], **sampling)
    if found == "stop":
        assert len(token_ids) >= min_tokens and token_ids[-1] == EOS and not ignore_eos
