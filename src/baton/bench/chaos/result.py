"""What a chaos run found, as values."""

import msgspec

from baton.bench.chaos.kinds import Kind
from baton.bench.chaos.recovery import Recovery


class PartResult(msgspec.Struct, kw_only=True):
    """One part of the run."""

    name: str
    duration_s: float = 0.0
    faults: dict[Kind, int] = {}
    ends: dict[str, int] = {}
    codes: dict[str, int] = {}
    """Of refused and failed requests, by error code."""
    recoveries: list[Recovery] = []
    num_health: int = 0
    num_ready: int = 0
    slowest_health_s: float = 0.0
    slowest_request_s: float = 0.0
    violations: list[str] = []
    """Everything that must not happen, in words."""
    counters: dict[str, int] = {}

    @property
    def num_loads(self) -> int:
        """Blocks that came up from the workers' lower tiers."""
        return sum(self.counters.get(f"tier_{tier}_loads", 0) for tier in ("host", "disk"))


class ChaosResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    version: str
    model: str
    seed: int
    minutes: float
    recovery_limit_s: float
    was_interrupted: bool = False
    """It was asked to end early: the last part, if it is there, was not judged after healing."""
    parts: tuple[PartResult, ...]

    @property
    def violations(self) -> list[str]:
        """Of all parts."""
        return [f"{part.name}: {text}" for part in self.parts for text in part.violations]
