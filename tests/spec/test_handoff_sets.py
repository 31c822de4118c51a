"""Specification 0x01A and 0x06: three sets, logical bytes, and the reuse ledger."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.layout import KVLayout
from baton.core.sets import handoff_sets, logical_nbytes, open_ledger, payload_us

TOY = KVLayout(
    num_layers=4, num_kv_heads=2, head_dim=8, block_size=4, dtype_k="float16", dtype_v="float16"
)
RUNNING = KVLayout(
    num_layers=32,
    num_kv_heads=8,
    head_dim=128,
    block_size=16,
    dtype_k="bfloat16",
    dtype_v="bfloat16",
)
MIB = 1 << 20


def test_compute_and_transfer_sets_differ():
    sets = handoff_sets(8, {0, 1, 2}, {0})
    assert sets.compute == {3, 4, 5, 6, 7}
    assert sets.transfer == {1, 2, 3, 4, 5, 6, 7}
    assert sets.source == set(range(8))
    assert sets.transfer - sets.compute == {1, 2}, "what the compute set would silently omit"


def test_logical_bytes_follow_the_transfer_set():
    sets = handoff_sets(8, {0, 1, 2}, {0})
    assert logical_nbytes(len(sets.transfer) * TOY.block_size, TOY) == 7168
    assert len(sets.transfer) * TOY.bytes_per_block == 7168
    wrong = logical_nbytes(len(sets.compute) * TOY.block_size, TOY)
    assert wrong == 5120 != open_ledger(TOY.block_size, 8 * TOY.block_size, TOY).logical_nbytes


def test_a_ledger_over_the_toy_transfer_set_is_all_logical():
    ledger = open_ledger(4, 32, TOY)
    assert (ledger.logical_nbytes, ledger.padding_nbytes) == (7168, 0)
    assert ledger.physical_nbytes == 7168


@given(st.integers(0, 40), st.data())
def test_set_laws(num_blocks, data):
    members = st.sets(st.integers(0, max(0, num_blocks - 1))) if num_blocks else st.just(set())
    reuse, visible = data.draw(members), data.draw(members)
    sets = handoff_sets(num_blocks, reuse, visible)
    universe = set(range(num_blocks))
    assert sets.source == universe
    assert sets.compute | reuse == universe and not sets.compute & reuse
    assert sets.transfer | visible == universe and not sets.transfer & visible


def test_reuse_outside_the_prompt_is_refused():
    with pytest.raises(AssertionError):
        handoff_sets(4, {4}, set())
    with pytest.raises(AssertionError):
        handoff_sets(4, set(), {9})


def test_running_configuration_is_128_kib_per_token():
    assert RUNNING.bytes_per_token == 131_072
    assert logical_nbytes(4096, RUNNING) == 512 * MIB


@pytest.mark.parametrize(
    ("source_reuse", "destination_reuse", "compute_rows", "transfer_rows", "payload"),
    [
        (0, 0, 4096, 4096, 512 * MIB),
        (3072, 0, 1024, 4096, 512 * MIB),
        (0, 3072, 4096, 1024, 128 * MIB),
        (3072, 3072, 1024, 1024, 128 * MIB),
    ],
    ids=["cold", "warm source", "warm destination", "both warm"],
)
def test_source_and_destination_reuse_affect_different_ledgers(
    source_reuse, destination_reuse, compute_rows, transfer_rows, payload
):
    size = RUNNING.block_size
    sets = handoff_sets(
        4096 // size, set(range(source_reuse // size)), set(range(destination_reuse // size))
    )
    assert len(sets.compute) * size == compute_rows
    assert len(sets.transfer) * size == transfer_rows
    ledger = open_ledger(destination_reuse, 4096, RUNNING)
    assert ledger.logical_nbytes == payload == logical_nbytes(transfer_rows, RUNNING)
    assert ledger.padding_nbytes == 0


@pytest.mark.parametrize(
    ("gigabytes_per_second", "milliseconds"),
    [(1, 536.87), (12.5, 42.95), (25, 21.47), (50, 10.74), (100, 5.37), (400, 1.34), (900, 0.60)],
)
def test_payload_only_transfer_times(gigabytes_per_second, milliseconds):
    bytes_per_us = gigabytes_per_second * 1000
    assert round(payload_us(512 * MIB, bytes_per_us) / 1000, 2) == milliseconds


def test_zero_bytes_still_make_a_handoff_of_zero_payload():
    ledger = open_ledger(4096, 4096, RUNNING)
    assert ledger.physical_nbytes == 0
    assert payload_us(ledger.logical_nbytes, 1000) == 0


def test_requests_of_different_geometry_need_their_own_coefficient():
    total = logical_nbytes(10, RUNNING) + logical_nbytes(10, TOY)
    assert total == 10 * (131_072 + 256)
