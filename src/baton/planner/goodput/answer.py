"""What a search for the highest rate found."""

from enum import StrEnum

import msgspec

from baton.goodput.interval import Estimate
from baton.goodput.search import Bound
from baton.planner.goodput.attained import Attained
from baton.planner.goodput.precision import RequestCount


class Contract(StrEnum):
    """What must reach the target's share."""

    PHASES = "phases"
    """Each clock by itself, be they different requests (DistServe)."""
    JOINT = "joint"
    """Requests that meet every clock at once."""

    def share(self, attained: Attained) -> float:
        """The share that this contract compares with the target."""
        return attained.phases if self is Contract.PHASES else attained.joint


class Length(StrEnum):
    """Whether runs were long enough: queues near saturation grow long after a short run is over."""

    SETTLED = "runs of four times as many requests give the same rate within the precision"
    UNSETTLED = "longer runs give a lower rate"
    UNCHECKED = "no longer run to compare with"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation: a rate, a seed, and what was attained."""

    seed: int
    rate_per_s: float
    num_requests: int
    attained: Attained
    is_cut: bool = False
    """Stopped when the rest was hopelessly late: its shares are on the low side."""


class SeedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate that passed with one seed's requests, and the lowest that failed."""

    seed: int
    bound: Bound
    rate_per_s: float
    """0 when even the lowest rate fails."""
    failing_rate_per_s: float


class GoodputAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A goodput in requests a second, its interval, and every simulation behind it."""

    contract: Contract
    bound: Bound
    rate: Estimate
    """The highest one at which the requests of all seeds together reach the target's share."""
    num_gpus: int
    """Every provisioned one."""
    binding: str
    """The clock that fails first above the rate."""
    at_rate: Attained
    """At that rate: the requests of all seeds."""
    seeds: tuple[SeedAnswer, ...]
    probes: tuple[Probe, ...]
    requests: RequestCount
    relative_precision: float
    length: Length = Length.UNCHECKED
    is_pruned: bool = False
    """Stopped early: its goodput is below the incumbent's, which `rate.high` repeats."""

    @property
    def per_gpu(self) -> Estimate:
        """Divided by every provisioned GPU."""
        return self.rate.times(1.0 / self.num_gpus)

    @property
    def num_simulations(self) -> int:
        """How many were run."""
        return len(self.probes)

    def __str__(self) -> str:
        if self.is_pruned:
            return f"below {self.rate.high:.4g}/s (stopped early)"
        return f"{self.rate}/s, {self.per_gpu.value:.4g}/s per GPU, {self.binding} binds"
