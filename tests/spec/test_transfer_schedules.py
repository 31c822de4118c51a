"""Specification 0x08I: the serialized and the per-layer schedule, and the choice between them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.snapshot import Rates
from baton.policy.schedule import choose_schedule, layer_visible_times, request_visible_time

READY = [25, 50, 75, 100]
LAYOUT = KVLayout(num_layers=4, num_kv_heads=1, head_dim=1, block_size=1)  # 8 bytes per row


@pytest.mark.parametrize(
    ("transfer", "visible", "serialized", "exposed", "hidden"),
    [(10, [35, 60, 85, 110], 140, 10, 30), (30, [55, 85, 115, 145], 220, 45, 75)],
    ids=["fast link", "slow link"],
)
def test_recurrence(transfer, visible, serialized, exposed, hidden):
    times = layer_visible_times(READY, [transfer] * 4)
    assert times == visible
    assert request_visible_time(READY, [transfer] * 4) == serialized
    assert times[-1] - READY[-1] == exposed
    assert serialized - times[-1] == hidden == 4 * transfer - exposed


def rates(transfer_us: float, overhead: float = 0.0) -> Rates:
    """100 rows: 25 us of compute and `transfer_us` of transfer per layer of 800 bytes."""
    return Rates(
        prefill_us_per_token=1.0,
        transfer_bytes_per_us=800 / transfer_us,
        transfer_overhead_us=overhead,
    )


@pytest.mark.parametrize(("transfer", "exposed", "request_exposed"), [(10, 10, 40), (30, 45, 120)])
def test_the_choice_uses_the_same_recurrence(transfer, exposed, request_exposed):
    choice = choose_schedule(LAYOUT, 100, 100, 1 << 20, rates(transfer))
    assert choice.layer_exposed_us == pytest.approx(exposed)
    assert choice.request_exposed_us == pytest.approx(request_exposed)
    assert choice.schedule is Schedule.LAYER


def test_per_operation_overhead_sends_a_small_prompt_whole():
    choice = choose_schedule(LAYOUT, 100, 100, 1 << 20, rates(10, overhead=50))
    assert choice.schedule is Schedule.REQUEST
    assert choice.layer_exposed_us > choice.request_exposed_us


def test_a_tie_goes_to_fewer_operations():
    one_layer = KVLayout(num_layers=1, num_kv_heads=1, head_dim=1, block_size=1)
    choice = choose_schedule(one_layer, 100, 100, 1 << 20, rates(10))
    assert choice.layer_exposed_us == choice.request_exposed_us
    assert choice.schedule is Schedule.REQUEST


@pytest.mark.parametrize("unmeasured", [Rates(), Rates(prefill_us_per_token=1.0)])
def test_nothing_measured_yet_streams_by_layer(unmeasured):
    assert choose_schedule(LAYOUT, 100, 100, 1 << 20, unmeasured).schedule is Schedule.LAYER


def test_overhead_has_one_crossover_in_prompt_length():
    """The longer the prompt, the better streaming: the choice changes at most once."""
    measured = Rates(prefill_us_per_token=4.0, transfer_bytes_per_us=8, transfer_overhead_us=20)
    chosen = [choose_schedule(LAYOUT, n, n, 1 << 20, measured).schedule for n in range(1, 200)]
    changes = sum(a is not b for a, b in itertools.pairwise(chosen))
    assert chosen[0] is Schedule.REQUEST and chosen[-1] is Schedule.LAYER and changes == 1


durations = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=12)


@given(durations)
def test_streaming_is_never_later_than_serialized_and_hides_what_it_does_not_expose(steps):
    ready, transfer, now = [], [], 0
    for compute, move in steps:
        now += compute
        ready.append(now)
        transfer.append(move)
    visible = layer_visible_times(ready, transfer)
    serialized = request_visible_time(ready, transfer)
    assert visible[-1] <= serialized
    assert visible[-1] >= max(ready[-1] + transfer[-1], ready[0] + sum(transfer))
    previous = 0
    for at, layer_ready, move in zip(visible, ready, transfer, strict=True):
        assert at == max(layer_ready, previous) + move
        previous = at
