"""Everything that `baton plan` found, as plain values: what `--json` writes and pages draw."""

import msgspec

from baton.goodput.interval import Estimate
from baton.planner.goodput.answer import Length
from baton.planner.goodput.precision import RequestCount
from baton.planner.placement.found import ArmGroup, Searched
from baton.planner.placement.packing import Packing
from baton.planner.placement.paths import PathLoad
from baton.planner.placement.residency import Residency
from baton.planner.plan.at_rate import AtRate
from baton.planner.plan.verdict import Verdict


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where the step times are from, and how far they may be off."""

    predictor: str
    reason: str
    """Why this source."""
    passed_over: tuple[tuple[str, str], ...]
    """Better ones, and what they lack."""
    sources: tuple[str, ...]
    """Of the curves of the arms."""
    is_extrapolated: bool
    """Some cell was not measured, or some step was beyond what was."""
    error: str
    """What is known of its error."""
    error_share: float
    """The same as a share of the step time, for the band of the verdict."""


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """The best deployment of one kind."""

    kind: str
    text: str
    groups: tuple[ArmGroup, ...]
    num_gpus: int
    num_cells: int
    goodput: Estimate
    """Requests a second; 0 when it meets the targets at no rate."""
    per_gpu: Estimate
    binding: str
    at: AtRate
    """At the rate that was asked for, else at its goodput."""
    curve: tuple[AtRate, ...]
    """At rates that both arms share."""
    paths: tuple[PathLoad, ...]
    """K/V links at the rate of `at`."""
    residency: Residency
    packing: Packing
    searched: Searched
    requests: RequestCount
    num_simulations: int
    length: Length
    """Whether longer runs would say the same."""


class ScalePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Goodput of both arms when both targets are so many times as long; None: not searched."""

    scale: float
    colocated: float | None
    split: float | None


class FrontierPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The best of one kind on so many GPUs."""

    kind: str
    text: str
    gpus: int
    goodput: Estimate
    price_per_hour: float | None


class SurfaceCell(msgspec.Struct, frozen=True, kw_only=True):
    """The net margin of splitting at one load and one link (0x0FD), in milliseconds a request."""

    link_gbytes_per_s: float
    load_share: float
    """Of the better arm's goodput."""
    delta_ms: float
    low_ms: float
    high_ms: float
    """Interval of the margin over seeds."""
    saved_ms: float
    exposed_ms: float
    route_ms: float
    failure_ms: float
    safety_ms: float
    """What the margin has to exceed."""
    passes: bool
    """TTFT and TPOT of the split meet their targets."""
    enables: bool


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer with all that it rests on."""

    version: str
    verdict: Verdict
    model: str
    system: str
    trace: str
    trace_notes: tuple[str, ...]
    num_requests: int
    mean_prompt: float
    mean_output: float
    longest: int
    own_rate_per_s: float
    targets: str
    attainment: float
    contract: str
    draws: str
    rule: str
    gpus: int
    asked_rate_per_s: float | None
    seeds: tuple[int, ...]
    provenance: Provenance
    colocated: ArmReport | None
    split: ArmReport | None
    scales: tuple[ScalePoint, ...]
    frontier: tuple[FrontierPoint, ...]
    surface: tuple[SurfaceCell, ...]
    skipped: tuple[str, ...]
    """Cuts that were not searched, and why."""
    warnings: tuple[str, ...]

    @property
    def arms(self) -> dict[str, ArmReport]:
        """Those that there are."""
        both = {"colocated": self.colocated, "split": self.split}
        return {name: arm for name, arm in both.items() if arm is not None}
