"""Whether splitting prefill from decode pays: the net margin of specification 0x0FD."""

from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError
from baton.goodput.attainment import Attainment


class NetMargin(msgspec.Struct, frozen=True, kw_only=True):
    """What disaggregation saves and costs one request on average, in microseconds.

    `exposed_transfer_us` is the part of the transfer that nothing overlaps. Saved time and route
    delta may be negative; a wait and a penalty may not.
    """

    interference_saved_us: float
    exposed_transfer_us: float
    route_delta_us: float
    failure_penalty_us: float

    def __post_init__(self) -> None:
        for name in ("exposed_transfer_us", "failure_penalty_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"net margin: {name} = {getattr(self, name)} is negative")

    @property
    def delta_us(self) -> float:
        """Delta T: what is left of the savings."""
        return (
            self.interference_saved_us
            - self.exposed_transfer_us
            - self.route_delta_us
            - self.failure_penalty_us
        )


class FailureCost(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of failure (retry, recompute, reroute, cache loss): how often, and what it costs."""

    kind: str
    frequency: float
    """Occurrences per request, as observed."""
    cost_us: float


class MarginVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for one cell of workload and topology, and everything it rests on."""

    enable: bool
    margin: NetMargin
    safety_margin_us: float
    ttft_passes: bool
    tpot_passes: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against it; empty when it is enabled."""
        against = []
        if not self.margin.delta_us > self.safety_margin_us:
            against.append(
                f"net margin {self.margin.delta_us:g} us does not exceed the safety margin of "
                f"{self.safety_margin_us:g} us"
            )
        if not self.ttft_passes:
            against.append("TTFT attainment is below its target")
        if not self.tpot_passes:
            against.append("TPOT attainment is below its target")
        return tuple(against)


def failure_penalty_us(costs: Sequence[FailureCost]) -> float:
    """The mean cost of failures to a request."""
    for one in costs:
        if one.frequency < 0 or one.cost_us < 0:
            raise ConfigError(
                f"failure cost {one.kind!r}: frequency = {one.frequency} and cost_us = "
                f"{one.cost_us} must not be negative"
            )
    return sum(one.frequency * one.cost_us for one in costs)


def decide(
    margin: NetMargin, safety_margin_us: float, *, ttft_passes: bool, tpot_passes: bool
) -> MarginVerdict:
    """Enabled only if the margin exceeds the safety margin and both attainment gates pass."""
    if not safety_margin_us >= 0:
        raise ConfigError(f"safety_margin_us = {safety_margin_us}: declare one of at least 0")
    return MarginVerdict(
        enable=margin.delta_us > safety_margin_us and ttft_passes and tpot_passes,
        margin=margin,
        safety_margin_us=safety_margin_us,
        ttft_passes=ttft_passes,
        tpot_passes=tpot_passes,
    )


def decide_measured(
    margin: NetMargin, safety_margin_us: float, attainment: Attainment
) -> MarginVerdict:
    """The decision with the gates of a measured attainment, which must have both targets."""
    if attainment.ttft is None or attainment.tpot is None:
        raise ConfigError(
            f"net margin: targets {attainment.targets} lack a TTFT or a TPOT; both gates are needed"
        )
    return decide(
        margin,
        safety_margin_us,
        ttft_passes=attainment.ttft_passes,
        tpot_passes=attainment.tpot_passes,
    )
