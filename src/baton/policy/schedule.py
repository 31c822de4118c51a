"""Choose the transfer schedule from prompt geometry with measured constants (0x07, 0x08I)."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.snapshot import Rates


def layer_visible_times(ready_us: Sequence[float], transfer_us: Sequence[float]) -> list[float]:
    """v_l = max(r_l, v_{l-1}) + x_l on one serialized transfer engine."""
    visible: list[float] = []
    previous = 0.0
    for ready, duration in zip(ready_us, transfer_us, strict=True):
        previous = max(ready, previous) + duration
        visible.append(previous)
    return visible


def request_visible_time(ready_us: Sequence[float], transfer_us: Sequence[float]) -> float:
    """C_request = r_{L-1} + sum of all transfers."""
    return ready_us[-1] + sum(transfer_us)


class ScheduleChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen schedule and what each would expose after the last layer is ready."""

    schedule: Schedule
    layer_exposed_us: float
    request_exposed_us: float


def choose_schedule(
    layout: KVLayout,
    num_compute_tokens: int,
    num_transfer_tokens: int,
    chunk_nbytes: int,
    rates: Rates,
) -> ScheduleChoice:
    """Compare both schedules by the recurrence; a tie goes to the one with fewer operations.

    Layer streaming pays the per-operation overhead once per layer, and while the source computes
    that overhead is taken from the compute core, so it is charged in full rather than hidden.
    Rates of 0 (nothing measured yet) choose by layer.
    """
    layers = layout.num_layers
    nbytes = num_transfer_tokens * layout.row_nbytes
    bandwidth = rates.transfer_bytes_per_us
    if not bandwidth or not rates.prefill_us_per_token or not num_transfer_tokens:
        return ScheduleChoice(schedule=Schedule.LAYER, layer_exposed_us=0, request_exposed_us=0)
    step = num_compute_tokens * rates.prefill_us_per_token / layers
    ready = [step * (layer + 1) for layer in range(layers)]
    payload = nbytes / bandwidth
    per_layer_operations = max(1, -(-nbytes // chunk_nbytes))
    request_operations = max(1, -(-nbytes * layers // chunk_nbytes))
    overhead = rates.transfer_overhead_us
    layer_visible = layer_visible_times(ready, [payload + per_layer_operations * overhead] * layers)
    stolen = overhead * per_layer_operations * (layers - 1)
    layer_exposed = layer_visible[-1] - ready[-1] + stolen
    moved_at_once = [payload + overhead * request_operations / layers] * layers
    request_exposed = request_visible_time(ready, moved_at_once) - ready[-1]
    by_layer = layer_exposed < request_exposed
    return ScheduleChoice(
        schedule=Schedule.LAYER if by_layer else Schedule.REQUEST,
        layer_exposed_us=layer_exposed,
        request_exposed_us=request_exposed,
    )
