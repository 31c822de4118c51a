"""The support matrix refuses by name: what, the values of both sides, the remedy."""

import pytest
from msgspec.structs import replace

from baton.errors import ConfigError
from baton.integrations.vllm.support import defects, pairing_defect, require_supported
from tests.integrations.vllm.members import FACTS


def test_what_it_was_tried_with_is_supported():
    assert defects(FACTS) == []
    require_supported(FACTS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vllm_version", "0.31.1"),
        ("attention_backend", "FLASH_ATTN"),
        ("cache_order", "BHLNC"),
        ("dtype", "fp8_e4m3"),
        ("num_cache_groups", 2),
        ("speculative", "eagle"),
        ("pp_size", 2),
    ],
)
def test_everything_else_is_refused_with_its_value(field, value):
    with pytest.raises(ConfigError) as refusal:
        require_supported(replace(FACTS, **{field: value}))
    assert field in str(refusal.value) and str(value) in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protocol", 2),
        ("vllm_version", "0.32.1"),
        ("attention_backend", "FLASH_ATTN"),
        ("cache_order", "x"),
        ("dtype", "bfloat16"),
        ("block_size", 64),
        ("data_plane", "shm"),
        ("num_kv_heads", 8),
    ],
)
def test_a_pair_that_differs_is_refused_with_both_values(field, value):
    defect = pairing_defect(FACTS, replace(FACTS, **{field: value}))
    assert defect.startswith(f"{field}: source {getattr(FACTS, field)!r}, destination {value!r}; ")
    assert pairing_defect(FACTS, FACTS) == ""


def test_other_tensor_parallel_sizes_pair_where_heads_can_be_cut():
    def pair(heads, source_tp, destination_tp, order="LBHNC"):
        facts = replace(FACTS, num_kv_heads=heads, cache_order=order)
        return pairing_defect(
            replace(facts, tp_size=source_tp), replace(facts, tp_size=destination_tp)
        )

    for order in ("LBHNC", "BLHNC"):
        for heads, source_tp, destination_tp in ((2, 1, 2), (4, 2, 4), (1, 4, 2), (2, 8, 1)):
            assert pair(heads, source_tp, destination_tp, order) == ""
    assert "tp_size: source 1, destination 2, with cache_order 'LBNHC'" in pair(2, 1, 2, "LBNHC")
    assert pair(2, 2, 2, "LBNHC") == ""
    assert pair(3, 1, 2).startswith("tp_size: 2 at the destination with 3 K/V heads; set ")
    assert pair(3, 2, 2).startswith("tp_size: 2 at the source")
