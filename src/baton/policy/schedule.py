"""Choose the transfer schedule from prompt geometry with measured constants (0x08I, 0x09E)."""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Schedule
from baton.core.layout import KVLayout
from baton.core.snapshot import Rates
from baton.policy.transfer_geometry import CallCounts, expected_calls


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
    layer_exposed_us: float = 0.0
    request_exposed_us: float = 0.0
    aggregated_exposed_us: float = 0.0


def choose_schedule(
    layout: KVLayout,
    num_compute_tokens: int,
    num_transfer_tokens: int,
    chunk_nbytes: int,
    rates: Rates,
    credit_nbytes: int = 0,
) -> ScheduleChoice:
    """Compare the three schedules by the recurrence; a tie goes to the one with fewer operations.

    Layer streaming pays the overhead of an operation once per layer at least, and while the source
    computes that overhead is taken from the compute core, so it is charged in full rather than
    hidden. One order for everything saves operations, and its read-back can begin only when all of
    it is there. Rates of 0 (nothing measured yet) choose by layer.
    """
    bandwidth = rates.transfer_bytes_per_us
    if not bandwidth or not rates.prefill_us_per_token or not num_transfer_tokens:
        return ScheduleChoice(schedule=Schedule.LAYER)
    price = _Price(layout, num_compute_tokens, num_transfer_tokens, chunk_nbytes, rates)
    layer = price.layer_exposed_us()
    request = price.whole_exposed_us(Schedule.REQUEST, chunk_nbytes)
    aggregated = price.whole_exposed_us(Schedule.AGGREGATED, max(chunk_nbytes, credit_nbytes))
    exposed = {Schedule.REQUEST: request, Schedule.AGGREGATED: aggregated, Schedule.LAYER: layer}
    return ScheduleChoice(
        schedule=min(exposed, key=lambda schedule: exposed[schedule]),
        layer_exposed_us=layer,
        request_exposed_us=request,
        aggregated_exposed_us=aggregated,
    )


class _Price:
    """What a transfer would expose, from its calls and the measured cost of each kind."""

    def __init__(
        self,
        layout: KVLayout,
        num_compute_tokens: int,
        num_transfer_tokens: int,
        chunk_nbytes: int,
        rates: Rates,
    ) -> None:
        self._layout, self._num_tokens, self._rates = layout, num_transfer_tokens, rates
        self._chunk_nbytes = chunk_nbytes
        self._nbytes = num_transfer_tokens * layout.row_nbytes
        step = num_compute_tokens * rates.prefill_us_per_token / layout.num_layers
        self._ready = [step * (layer + 1) for layer in range(layout.num_layers)]

    def _calls(self, schedule: Schedule, limit_nbytes: int) -> CallCounts:
        layout, step_blocks = self._layout, self._layout.num_blocks(self._num_tokens)
        return expected_calls(
            layout, self._num_tokens, schedule, limit_nbytes, limit_nbytes, step_blocks
        )

    def _layer_us(self, calls: CallCounts) -> float:
        """Payload of one layer with its share of the calls."""
        rates, layers = self._rates, self._layout.num_layers
        called = calls.transfer * rates.transfer_overhead_us
        called += calls.network * rates.transfer_run_us
        return self._nbytes / rates.transfer_bytes_per_us + called / layers

    def layer_exposed_us(self) -> float:
        """By layer: what is not hidden behind compute, and what is taken from it."""
        calls, layers = self._calls(Schedule.LAYER, self._chunk_nbytes), self._layout.num_layers
        visible = layer_visible_times(self._ready, [self._layer_us(calls)] * layers)
        stolen = calls.transfer * self._rates.transfer_overhead_us * (layers - 1) / layers
        return visible[-1] - self._ready[-1] + stolen

    def whole_exposed_us(self, schedule: Schedule, limit_nbytes: int) -> float:
        """After the prompt: everything, and the part of its read-back that no copy hides."""
        calls, layers = self._calls(schedule, limit_nbytes), self._layout.num_layers
        moved = [self._layer_us(calls)] * layers
        exposed = request_visible_time(self._ready, moved) - self._ready[-1]
        read_back = self._rates.digest_bytes_per_us
        if not read_back:
            return exposed
        chunk_nbytes = min(self._chunk_nbytes, self._nbytes * layers)
        longer_nbytes = self._nbytes * layers / calls.transfer - chunk_nbytes
        return exposed + max(0.0, longer_nbytes) / read_back
