"""Our side: one process for each run, with machine code in a folder of its own."""

import os
import sys
import time
from pathlib import Path

import msgspec

from baton.bench.sim.children import run_child
from baton.bench.sim.outcome import Outcome
from baton.bench.sim.scenes import Scene
from baton.errors import BatonError

_TIMEOUT_S = 900.0


def run_ours(scene: Scene, trace: Path | None, cache: Path, runs: int = 1) -> tuple[Outcome, float]:
    """What it found, and seconds of the whole process. Raises BatonError."""
    command = [sys.executable, "-m", "baton.bench.sim.child", scene.name]
    command += [str(trace) if trace else "-", str(runs)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    begin = time.perf_counter()
    told = run_child(command, environment, _TIMEOUT_S)
    process_s = time.perf_counter() - begin
    outcome = msgspec.json.decode(told, type=Outcome)
    if outcome.num_completed != outcome.num_requests:
        raise BatonError(
            f"{scene.name}: {outcome.num_completed} of {outcome.num_requests} requests completed; "
            "times of a part are not compared"
        )
    return outcome, process_s
