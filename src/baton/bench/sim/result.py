"""Everything that one run of the benchmark measured, and what is asked of it."""

import msgspec

from baton.bench.sim.anchors import Scaled
from baton.bench.sim.duel import Duel
from baton.bench.sim.limit import Limit
from baton.bench.sim.outcome import Outcome

DYNAMO_RATIO = 3.0
PEER_RATIO = 20.0
PLACEMENT_S = 10.0
MILLION_NBYTES = 2 << 30
_ASKED = {"w1": "W1, 4P+4D", "w6": "W6 by K/V, 4P+4D"}


class PlacementTime(msgspec.Struct, frozen=True, kw_only=True):
    """One search in a process of its own, after compilation."""

    what: str
    seconds: float
    found: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A figure beside its bound."""

    name: str
    value: float
    bound: float
    unit: str
    is_floor: bool

    @property
    def is_met(self) -> bool:
        """On the right side."""
        return self.value >= self.bound if self.is_floor else self.value <= self.bound


class Result(msgspec.Struct, kw_only=True):
    """For programs."""

    limit: Limit
    load_average: float
    compile_s: float = 0.0
    duels: list[Duel] = []
    factor: float = 1.0
    """Of this machine now against that of the anchors."""
    scaled: list[Scaled] = []
    million: Outcome | None = None
    placement: PlacementTime | None = None
    missing: list[str] = []
    """What was not measured, and why."""

    @property
    def targets(self) -> list[Target]:
        """What was measured, beside what is asked."""
        found = [
            Target(
                name=f"Dynamo's replay, {_ASKED[duel.scene]}",
                value=duel.loop_ratio,
                bound=DYNAMO_RATIO,
                unit="times",
                is_floor=True,
            )
            for duel in self.duels
            if duel.scene in _ASKED and duel.theirs
        ]
        if self.scaled:
            worst = min(self.scaled, key=lambda one: one.ratio)
            found.append(
                Target(
                    name=f"Python peers, the least: {worst.scene}",
                    value=worst.ratio,
                    bound=PEER_RATIO,
                    unit="times",
                    is_floor=True,
                )
            )
        if self.placement is not None:
            found.append(
                Target(
                    name=f"placement, {self.placement.what}",
                    value=self.placement.seconds,
                    bound=PLACEMENT_S,
                    unit="s",
                    is_floor=False,
                )
            )
        if self.million is not None:
            found.append(
                Target(
                    name="1,000,000 requests in one simulation",
                    value=self.million.peak_nbytes / 2**30,
                    bound=MILLION_NBYTES / 2**30,
                    unit="GiB",
                    is_floor=False,
                )
            )
        return found

    @property
    def is_met(self) -> bool:
        """Every target that was measured."""
        return all(target.is_met for target in self.targets)
