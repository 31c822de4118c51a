"""The root of a prefix chain is everything that must agree; a block's name is its whole past."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.cache.prefix import block_hashes, block_names, chain_root, extend_chain
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request, SamplingParams

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_dim=4, block_size=4)
IDENTITY = ModelIdentity(model="toy", checkpoint_hash="c", tokenizer_hash="t", adapter_hash="a")
ROOT = chain_root(IDENTITY, LAYOUT, "tenant", "salt")


@pytest.mark.parametrize(
    "field",
    [
        "checkpoint_hash",
        "tokenizer_hash",
        "adapter_hash",
        "position_policy_hash",
        "mask_policy_hash",
    ],
)
def test_another_model_or_adapter_is_another_root(field):
    other = msgspec.structs.replace(IDENTITY, **{field: "other"})
    assert chain_root(other, LAYOUT, "tenant", "salt") != ROOT


@pytest.mark.parametrize(
    "change",
    [
        {"block_size": 8},
        {"dtype_k": "bfloat16"},
        {"dtype_v": "bfloat16"},
        {"num_layers": 3},
        {"num_kv_heads": 1},
        {"head_dim": 8},
        {"num_kv_heads": 4, "head_dim": 2},
        {"axis_order": "other"},
        {"tp_size": 2},
        {"pp_size": 2},
        {"latent_dim": 8},
    ],
    ids=str,
)
def test_another_layout_or_block_size_is_another_root(change):
    other = msgspec.structs.replace(LAYOUT, **change)
    assert chain_root(IDENTITY, other, "tenant", "salt") != ROOT


@pytest.mark.parametrize(
    ("tenant", "salt"),
    [("other", "salt"), ("tenant", "other"), ("", ""), ("tenantsalt", ""), ("tenants", "alt")],
)
def test_another_tenant_or_salt_is_another_root_even_when_they_concatenate_alike(tenant, salt):
    assert chain_root(IDENTITY, LAYOUT, tenant, salt) != ROOT


def test_the_display_name_of_a_model_is_not_in_the_root():
    renamed = msgspec.structs.replace(IDENTITY, model="other name")
    assert chain_root(renamed, LAYOUT, "tenant", "salt") == ROOT


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_roots_are_equal_only_for_equal_parts(one, other):
    same = chain_root(IDENTITY, LAYOUT, *one) == chain_root(IDENTITY, LAYOUT, *other)
    assert same == (one == other)


def test_the_same_block_after_another_prefix_has_another_name():
    block = [5, 6, 7, 8]
    after_one = block_hashes(ROOT, [1, 2, 3, 4, *block], 4)
    after_other = block_hashes(ROOT, [1, 2, 3, 9, *block], 4)
    first = block_hashes(ROOT, block, 4)
    assert len({after_one[1], after_other[1], first[0]}) == 3


def test_the_same_tokens_under_another_root_share_no_name():
    tokens = list(range(12))
    other = chain_root(IDENTITY, LAYOUT, "other", "salt")
    assert not set(block_hashes(ROOT, tokens, 4)) & set(block_hashes(other, tokens, 4))


def test_a_partial_tail_has_no_name():
    assert [len(block_hashes(ROOT, list(range(n)), 4)) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_the_chain_is_the_recurrence_of_0x09g():
    tokens = list(range(8))
    first = extend_chain(ROOT, tokens[:4])
    assert block_hashes(ROOT, tokens, 4) == [first, extend_chain(first, tokens[4:])]


tokens = st.lists(st.integers(0, 3), max_size=24)


@given(tokens, tokens)
def test_names_agree_exactly_on_the_common_prefix_of_full_blocks(one, other):
    names = list(zip(block_hashes(ROOT, one, 4), block_hashes(ROOT, other, 4), strict=False))
    for number, (a, b) in enumerate(names, start=1):
        assert (a == b) == (one[: number * 4] == other[: number * 4])


@pytest.mark.parametrize("num_known", [0, 1, 2, 3, 5])
def test_names_that_are_known_change_nothing(num_known):
    """Known names may be fewer than the blocks, or go on beyond the tokens."""
    request = Request(
        request_id="r",
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=1),
        tenant_id="tenant",
        cache_salt="salt",
    )
    size = LAYOUT.block_size
    tokens = list(range(5 * size + 1))
    whole = block_names(IDENTITY, LAYOUT, request, tokens)
    assert whole == block_hashes(ROOT, tokens, size)
    shorter = tokens[: 3 * size + 1]
    assert block_names(IDENTITY, LAYOUT, request, shorter, whole[:num_known]) == whole[:3]
