"""Ours and Dynamo's in turn over the same file, and the medians of the ratios of each round."""

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec

from baton.bench.sim.dynamo import Dynamo
from baton.bench.sim.ours import run_ours
from baton.bench.sim.outcome import Outcome, PeerOutcome
from baton.bench.sim.scenes import Scene

Say = Callable[[str], None]


class Duel(msgspec.Struct, kw_only=True):
    """One scene; rounds side by side."""

    scene: str
    what: str
    ours: list[Outcome] = []
    ours_process_s: list[float] = []
    theirs: list[PeerOutcome] = []

    @property
    def loop_ratio(self) -> float:
        """How many times as many requests our loop simulates in a second."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(a.per_s / b.per_s for a, b in pairs)

    @property
    def process_ratio(self) -> float:
        """The same with start-up, reading the file and the report, machine code being there."""
        pairs = zip(self.ours_process_s, self.theirs, strict=True)
        return statistics.median(b.process_s / a for a, b in pairs)

    @property
    def our_per_s(self) -> float:
        """Median over the rounds."""
        return statistics.median(one.per_s for one in self.ours)

    @property
    def their_per_s(self) -> float:
        """Median over the rounds; 0 without a peer."""
        return statistics.median(one.per_s for one in self.theirs) if self.theirs else 0.0


def fight(
    scene: Scene, trace: Path, cache: Path, dynamo: Dynamo | None, rounds: int, say: Say
) -> Duel:
    """Who begins changes from round to round. Raises BatonError."""
    duel = Duel(scene=scene.name, what=scene.what)

    def mine() -> None:
        outcome, process_s = run_ours(scene, trace, cache)
        duel.ours.append(outcome)
        duel.ours_process_s.append(process_s)
        say(f"{scene.name}: ours {outcome.per_s:,.0f} requests/s")

    def peer() -> None:
        if dynamo is not None:
            duel.theirs.append(dynamo.replay(scene, trace))
            say(f"{scene.name}: Dynamo {duel.theirs[-1].per_s:,.0f} requests/s")

    for number in range(rounds):
        for act in (mine, peer) if number % 2 else (peer, mine):
            act()
    return duel
