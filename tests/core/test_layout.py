"""The K/V layout: byte arithmetic for every attention kind, and identity by digest."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.digest import digest
from baton.core.layout import DTYPE_NBYTES, KVLayout, ModelIdentity
from baton.errors import ConfigError

LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_dim=8, block_size=4)
CHANGES = {
    "num_layers": 5,
    "num_kv_heads": 3,
    "head_dim": 9,
    "block_size": 8,
    "dtype_k": "bfloat16",
    "dtype_v": "bfloat16",
    "axis_order": "layer,block,kv,slot,head,dim",
    "tp_size": 2,
    "pp_size": 2,
    "latent_dim": 6,
}


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 64),
    st.integers(1, 32),
    st.sampled_from(sorted(DTYPE_NBYTES)),
    st.sampled_from(sorted(DTYPE_NBYTES)),
)
def test_bytes_of_separate_k_and_v(layers, heads, dim, size, dtype_k, dtype_v):
    layout = KVLayout(
        num_layers=layers,
        num_kv_heads=heads,
        head_dim=dim,
        block_size=size,
        dtype_k=dtype_k,
        dtype_v=dtype_v,
    )
    scalars = DTYPE_NBYTES[dtype_k] + DTYPE_NBYTES[dtype_v]
    assert layout.bytes_per_token == layers * heads * dim * scalars
    assert layout.bytes_per_block == layout.bytes_per_token * size
    assert layout.layer_block_nbytes * layers == layout.bytes_per_block


def test_a_latent_row_is_stored_once_whatever_the_heads():
    latent = msgspec.structs.replace(LAYOUT, latent_dim=576, dtype_k="bfloat16")
    assert latent.row_nbytes == 1152
    wider = msgspec.structs.replace(latent, num_kv_heads=128)
    assert wider.bytes_per_token == latent.bytes_per_token == 4 * 1152


@given(st.integers(0, 500), st.integers(1, 32))
def test_blocks_hold_exactly_the_rows(num_tokens, size):
    layout = msgspec.structs.replace(LAYOUT, block_size=size)
    blocks = layout.num_blocks(num_tokens)
    assert (blocks - 1) * size < num_tokens <= blocks * size or num_tokens == blocks == 0


def test_every_field_is_in_the_digest():
    assert set(CHANGES) == set(KVLayout.__struct_fields__)
    others = {msgspec.structs.replace(LAYOUT, **{k: v}).digest for k, v in CHANGES.items()}
    assert len(others) == len(CHANGES) and LAYOUT.digest not in others


@pytest.mark.parametrize(
    "field", ["num_layers", "num_kv_heads", "head_dim", "block_size", "tp_size", "pp_size"]
)
@pytest.mark.parametrize("value", [0, -1])
def test_impossible_sizes_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"layout\.{field} is {value}"):
        msgspec.structs.replace(LAYOUT, **{field: value})


@pytest.mark.parametrize("field", ["dtype_k", "dtype_v"])
def test_an_unknown_dtype_is_refused_by_name(field):
    with pytest.raises(ConfigError, match=rf"layout\.{field} is 'int3'"):
        msgspec.structs.replace(LAYOUT, **{field: "int3"})


def test_a_negative_latent_width_is_refused():
    with pytest.raises(ConfigError, match=r"layout\.latent_dim is -1"):
        msgspec.structs.replace(LAYOUT, latent_dim=-1)


def test_identity_is_every_field_but_the_display_name():
    fields = ModelIdentity.__struct_fields__
    base = ModelIdentity(**dict.fromkeys(fields, "x"))
    changed = {f: msgspec.structs.replace(base, **{f: "y"}).digest for f in fields}
    assert changed.pop("model") == base.digest
    assert len({*changed.values(), base.digest}) == len(fields)


def test_a_digest_ignores_key_order_and_sees_types():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert len({digest(value) for value in (1, "1", 1.5, [1], [], "", None, True)}) == 8
    assert len(digest("")) == 32
