"""The byte ledger: logical and physical traffic apart, and every difference has a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.layout import KVLayout
from baton.core.sets import TransferLedger, logical_nbytes, open_ledger

LAYOUT = KVLayout(num_layers=3, num_kv_heads=2, head_dim=4, block_size=4)  # 192 bytes per token


@pytest.mark.parametrize(
    ("start", "tokens", "logical", "padding"),
    [
        (0, 4, 768, 0),
        (0, 5, 960, 576),
        (4, 5, 192, 576),
        (4, 8, 768, 0),
        (8, 8, 0, 0),
        (0, 0, 0, 0),
    ],
)
def test_a_partial_last_block_is_padding_not_payload(start, tokens, logical, padding):
    ledger = open_ledger(start, tokens, LAYOUT)
    assert (ledger.logical_nbytes, ledger.padding_nbytes) == (logical, padding)


@given(st.integers(0, 20), st.integers(0, 100))
def test_physical_bytes_of_a_clean_transfer_are_whole_blocks(start_block, rows):
    start = start_block * LAYOUT.block_size
    ledger = open_ledger(start, start + rows, LAYOUT)
    assert ledger.logical_nbytes == logical_nbytes(rows, LAYOUT)
    assert ledger.physical_nbytes == LAYOUT.num_blocks(rows) * LAYOUT.bytes_per_block
    assert 0 <= ledger.padding_nbytes < LAYOUT.bytes_per_block


@pytest.mark.parametrize(
    "name", [f for f in TransferLedger.__struct_fields__ if f != "logical_nbytes"]
)
def test_every_named_difference_is_physical_and_never_logical(name):
    ledger = TransferLedger(**{"logical_nbytes": 100, name: 7})
    assert ledger.physical_nbytes == 107
    assert ledger.logical_nbytes == 100


@pytest.mark.parametrize(("start", "tokens"), [(2, 8), (8, 4)])
def test_a_transfer_starts_on_a_block_and_not_after_its_end(start, tokens):
    with pytest.raises(AssertionError):
        open_ledger(start, tokens, LAYOUT)
