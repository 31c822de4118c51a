"""Peers that no registry carries: what they once gave, scaled by what Dynamo gives now.

Their figures and Dynamo's were taken on one machine in one session. Dynamo's own figure of this
run tells how fast this machine is at this moment, so

    a peer's requests/s now = its anchor x (Dynamo's requests/s now / Dynamo's anchor)
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from baton.bench.sim.duel import Duel
from baton.bench.sim.outcome import Outcome
from baton.bench.sim.traces import data_file
from baton.errors import ConfigError

_FILE = "bench-inputs/peer-anchors.json"
_REFERENCE = ("dynamo", "W1 r16 10000", "4P+4D")
PLACES = {
    "simdistserve-w3": ("simdistserve", "W3 r2 first 1000", ""),
    "simdistserve-w1": ("simdistserve", "W1 r2 10000", ""),
    "splitwise-r80-1000": ("splitwise-sim", "W1 r80 first 1000", ""),
    "splitwise-r80": ("splitwise-sim", "W1 r80 10000", ""),
    "splitwise-r16": ("splitwise-sim", "W1 r16 first 1000", ""),
}
"""Beginnings of a row's peer, workload and configuration, for each scene of ours."""


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """A peer on its own workload, and ours on the same requests."""

    scene: str
    peer: str
    workload: str
    anchor_per_s: float
    peer_per_s: float
    """Scaled to this machine now."""
    our_per_s: float

    @property
    def ratio(self) -> float:
        """How many times as many requests we simulate in a second."""
        return self.our_per_s / self.peer_per_s


class Anchors:
    """The rows of the file."""

    def __init__(self, folder: Path) -> None:
        path = data_file(folder, _FILE)
        self._rows: list[dict[str, Any]] = json.loads(path.read_bytes())["speed"]

    def find(self, peer: str, workload: str, config: str) -> dict[str, Any]:
        """The row that begins so. Raises ConfigError."""
        for row in self._rows:
            if (
                row["peer"].startswith(peer)
                and row["workload"].startswith(workload)
                and row["config"].startswith(config)
            ):
                return row
        raise ConfigError(f"{_FILE}: no row of {peer} on {workload}")

    def factor(self, duel: Duel | None) -> float:
        """How fast this machine is by Dynamo's figure; 1 where it was not run."""
        if duel is None or not duel.theirs:
            return 1.0
        return float(duel.their_per_s / self.find(*_REFERENCE)["req_per_s_loop"])

    def scale(self, scene: str, outcome: Outcome, factor: float) -> Scaled:
        """One peer beside ours."""
        row = self.find(*PLACES[scene])
        anchor = float(row["req_per_s_loop"])
        return Scaled(
            scene=scene,
            peer=row["peer"],
            workload=f"{row['workload']}, {row['config']}",
            anchor_per_s=anchor,
            peer_per_s=anchor * factor,
            our_per_s=outcome.per_s,
        )
