"""How long the placement search of DistServe's row takes: OPT-66B, ShareGPT, 4 nodes of 8 A100.

`python -m baton.bench.sim.placement DATA` is the process that is timed, after a search of one node
that compiles.
"""

import os
import sys
import time
from pathlib import Path

import msgspec

from baton.bench.sim.children import run_child
from baton.bench.sim.result import PlacementTime
from baton.planner.reproduce.context import Context
from baton.planner.reproduce.distserve import pair_search, space_of, table_cuts, testbed
from baton.planner.reproduce.lengths import sharegpt
from baton.planner.reproduce.r5 import CASES

_CASE = next(case for case in CASES if (case.model, case.workload) == ("opt-66b", "ShareGPT"))
_NODES, _GPUS = 4, 8
_TIMEOUT_S = 900.0


def time_placement(data: Path, cache: Path) -> PlacementTime:
    """In a process of its own. Raises BatonError."""
    command = [sys.executable, "-m", "baton.bench.sim.placement", str(data)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return msgspec.json.decode(run_child(command, environment, _TIMEOUT_S), type=PlacementTime)


def _search(data: Path, num_nodes: int) -> PlacementTime:
    context, cluster = Context(folder=data), testbed(num_nodes, _GPUS)
    lengths = sharegpt(context)
    begin = time.perf_counter()
    space = space_of(
        context, _CASE.model, cluster, predictor=_CASE.predictor, parallels=table_cuts(cluster)
    )
    found = pair_search(space, lengths, _CASE.targets, context)
    seconds = time.perf_counter() - begin
    return PlacementTime(
        what=f"{_CASE} on {cluster}",
        seconds=seconds,
        found=f"{found.searched.statement}; best: {found.best}",
    )


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _search(_folder, 1)
    print(msgspec.json.encode(_search(_folder, _NODES)).decode())
