"""Calls of a transfer by schedule: the published four-layer example, and our own layout."""

import itertools
from random import Random

import pytest
from msgspec.structs import replace

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.manifest import ChunkGeometry, choose_geometry, plan_chunks
from baton.core.reblock import Reblock
from baton.core.snapshot import Rates
from baton.policy.schedule import choose_schedule
from baton.policy.transfer_geometry import (
    CallCounts,
    discrete_calls,
    expected_calls,
    num_stretches,
    paged_calls,
    reblocked_runs_of,
)
from baton.runtime.dataplane.runs import coalesce
from baton.runtime.regions import Side, block_runs

LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_dim=4, block_size=4)
SIZE = LAYOUT.layer_block_nbytes
CHUNK = 1 << 20


@pytest.mark.parametrize(
    ("schedule", "transfer", "network"),
    [(Schedule.LAYER, 8, 8), (Schedule.REQUEST, 1, 8), (Schedule.AGGREGATED, 1, 1)],
)
def test_four_layers_of_separate_keys_and_values(schedule, transfer, network):
    assert discrete_calls(4, 1, schedule) == CallCounts(transfer=transfer, network=network)


@pytest.mark.parametrize("num_blocks", [2, 7, 64])
def test_a_longer_prompt_multiplies_network_calls_but_for_the_aggregated_one(num_blocks):
    assert discrete_calls(4, num_blocks, Schedule.LAYER).network == 8 * num_blocks
    assert discrete_calls(4, num_blocks, Schedule.REQUEST).network == 8 * num_blocks
    assert discrete_calls(4, num_blocks, Schedule.AGGREGATED) == CallCounts(transfer=1, network=1)


def test_our_block_has_one_address_for_each_layer():
    calls = {s: expected_calls(LAYOUT, 4, s, CHUNK, CHUNK, 64) for s in Schedule}
    assert calls == {
        Schedule.LAYER: CallCounts(transfer=4, network=4),
        Schedule.REQUEST: CallCounts(transfer=1, network=4),
        Schedule.AGGREGATED: CallCounts(transfer=1, network=4),
    }


def test_adjoining_blocks_are_one_stretch():
    assert num_stretches((4, 5, 6), (0, 1, 2)) == 1
    assert num_stretches((4, 5, 6), (0, 1, 3)) == 2
    assert num_stretches((4, 6, 5), (0, 2, 1)) == 3
    assert num_stretches((), ()) == 0


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("seed", range(6))
def test_prediction_equals_the_runs_that_are_ordered(schedule, seed):
    random = Random(seed)
    num_blocks = random.randrange(1, 12)
    mine, theirs = random.sample(range(30), num_blocks), random.sample(range(40), num_blocks)
    if seed % 2:
        mine, theirs = sorted(mine), sorted(theirs)
    cut = choose_geometry(LAYOUT, num_blocks, schedule, 5 * SIZE, 3, 13 * SIZE)
    plan = plan_chunks(LAYOUT, num_blocks, cut)
    ordered = 0
    for spec in plan:
        end = spec.block_start + spec.num_blocks
        here, there = mine[spec.block_start : end], theirs[spec.block_start : end]
        ordered += len(coalesce(block_runs(LAYOUT, spec, Side(here, 31), Side(there, 41))))
    assert paged_calls(plan, mine, theirs) == CallCounts(transfer=len(plan), network=ordered)


def test_heads_multiply_the_stretches_between_blocks_of_two_sizes():
    reblock = Reblock(source_block_size=8, source_slot=0, destination_block_size=32, num_rows=40)
    assert reblocked_runs_of(LAYOUT, reblock) == 2 * LAYOUT.num_kv_heads * 5
    assert reblocked_runs_of(replace(LAYOUT, latent_dim=3), reblock) == 5


@pytest.mark.parametrize(
    ("num_blocks", "credit_blocks"), list(itertools.product((1, 3, 8), (1, 2, 9)))
)
def test_an_aggregated_set_takes_the_fewest_orders_that_the_credit_allows(
    num_blocks, credit_blocks
):
    """Compared with every rectangular cut there is."""
    limit = credit_blocks * SIZE
    cut = choose_geometry(LAYOUT, num_blocks, Schedule.AGGREGATED, SIZE, 64, limit)
    plan = plan_chunks(LAYOUT, num_blocks, cut)
    assert max(spec.nbytes for spec in plan) <= limit
    every = [
        len(plan_chunks(LAYOUT, num_blocks, ChunkGeometry(chunk_layers=a, chunk_blocks=b)))
        for a in range(1, 5)
        for b in range(1, num_blocks + 1)
        if a * b <= credit_blocks
    ]
    assert len(plan) == min(every)


def test_everything_in_one_order_within_the_credit():
    cut = choose_geometry(LAYOUT, 8, Schedule.AGGREGATED, SIZE, 64, 1 << 20)
    assert len(plan_chunks(LAYOUT, 8, cut)) == 1
    assert len(plan_chunks(LAYOUT, 8, choose_geometry(LAYOUT, 8, Schedule.REQUEST, SIZE, 64))) == 32


MEASURED = Rates(
    prefill_us_per_token=4_000.0,
    transfer_bytes_per_us=4_000.0,
    transfer_overhead_us=650.0,
    digest_bytes_per_us=15_000.0,
)
SMOLLM2 = KVLayout(num_layers=30, num_kv_heads=3, head_dim=64, block_size=16)


def chosen(num_tokens: int, rates: Rates = MEASURED) -> Schedule:
    return choose_schedule(SMOLLM2, num_tokens, num_tokens, 4 << 20, rates, 32 << 20).schedule


def test_a_short_prompt_goes_at_once_when_a_chunk_costs_the_loop_more_than_it_hides():
    assert chosen(24) is Schedule.REQUEST
    assert chosen(24, replace(MEASURED, transfer_overhead_us=3.0)) is Schedule.LAYER


def test_a_dear_order_joins_what_a_request_would_send_in_chunks():
    assert chosen(512) is Schedule.AGGREGATED
    assert chosen(512, replace(MEASURED, transfer_overhead_us=100.0)) is Schedule.LAYER


def test_the_read_back_of_one_large_order_is_charged():
    choice = choose_schedule(
        SMOLLM2, 512, 512, 4 << 20, replace(MEASURED, transfer_overhead_us=0.0), 32 << 20
    )
    assert choice.aggregated_exposed_us > choice.request_exposed_us


def test_stretches_are_charged_too():
    with_runs = replace(MEASURED, transfer_run_us=2.0)
    plain = choose_schedule(SMOLLM2, 24, 24, 4 << 20, MEASURED, 32 << 20)
    priced = choose_schedule(SMOLLM2, 24, 24, 4 << 20, with_runs, 32 << 20)
    assert priced.request_exposed_us - plain.request_exposed_us == pytest.approx(60.0)
