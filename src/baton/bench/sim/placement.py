"""How long a whole placement search takes: OPT-66B, ShareGPT's lengths, one node of A100s.

`python -m baton.bench.sim.placement DATA` is the process that is timed, after a small search that
compiles.
"""

import os
import sys
import time
from pathlib import Path

import msgspec

from baton.bench.sim.children import run_child
from baton.bench.sim.result import PlacementTime
from baton.goodput.slo import SLOTargets
from baton.hardware.model import find_model
from baton.hardware.predictor import find_predictor
from baton.hardware.system import find_system
from baton.planner.goodput.draws import Draws
from baton.planner.placement.ask import Ask, Objective
from baton.planner.placement.cluster import cluster_of
from baton.planner.placement.search import find_placement
from baton.planner.placement.space import find_space
from baton.planner.reproduce.context import Context
from baton.planner.reproduce.lengths import sharegpt

_MODEL, _SYSTEM, _NUM_GPUS = "opt-66b", "a100_sxm", 8
_TTFT_US, _TPOT_US = 2_500_000, 150_000
_TIMEOUT_S = 900.0


def time_placement(data: Path, cache: Path) -> PlacementTime:
    """In a process of its own. Raises BatonError."""
    command = [sys.executable, "-m", "baton.bench.sim.placement", str(data)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    told = run_child(command, environment, _TIMEOUT_S)
    return msgspec.json.decode(told, type=PlacementTime)


def _search(data: Path, num_gpus: int) -> PlacementTime:
    model, system = find_model(_MODEL), find_system(_SYSTEM)
    predictor = find_predictor(model, system, data=data, name="distserve")
    space = find_space(model, system, predictor, cluster_of(system, num_gpus))
    lengths = sharegpt(Context(folder=data))
    ask = Ask(
        targets=SLOTargets(ttft_us=_TTFT_US, tpot_us=_TPOT_US),
        objective=Objective.PER_GPU,
        draws=Draws(),
    )
    begin = time.perf_counter()
    found = find_placement(space, lengths, ask)
    seconds = time.perf_counter() - begin
    best = found.best_split or found.best_colocated
    return PlacementTime(
        what=f"{model.name} on {space.cluster} of {system.name}, {len(space.candidates)} cuts",
        seconds=seconds,
        found=f"best: {best}" if best else "nothing meets the targets",
    )


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _search(_folder, _NUM_GPUS // 2)
    print(msgspec.json.encode(_search(_folder, _NUM_GPUS)).decode())
