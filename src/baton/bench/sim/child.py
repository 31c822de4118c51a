"""One scene in a process of its own: `python -m baton.bench.sim.child SCENE TRACE RUNS`.

Prints an `Outcome`. `-` as the trace makes a made-up workload in memory.
"""

import resource
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from baton.bench.sim.outcome import Outcome
from baton.bench.sim.scenes import find_scene
from baton.bench.sim.traces import CONSTANT_LENGTHS, constant_arrivals_us
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.load import load_trace

_KIB = 1024
_NUM_FIRST = 16


def main(arguments: list[str]) -> None:
    """Compile or load machine code by a few requests, then measure."""
    name, trace, runs = arguments
    scene = find_scene(name)
    begin = time.perf_counter()
    workload = pack(load_trace(Path(trace))) if trace != "-" else _constant(scene.trace)
    loaded = time.perf_counter()
    deployment = scene.deployment
    simulate_fast(deployment, _first(workload, _NUM_FIRST))
    ready = time.perf_counter()
    loops_s = []
    for _ in range(int(runs)):
        start = time.perf_counter()
        result = simulate_fast(deployment, workload)
        loops_s.append(time.perf_counter() - start)
    ttft_ms, tpot_ms = result.ttft_us / 1000, result.tpot_us / 1000
    outcome = Outcome(
        num_requests=len(workload),
        num_completed=int(result.is_completed.sum()),
        loops_s=loops_s,
        load_s=loaded - begin,
        ready_s=ready - loaded,
        num_events=result.num_events,
        num_rows=int(result.workers.num_rows.sum()),
        mean_ttft_ms=float(np.nanmean(ttft_ms)),
        p99_ttft_ms=float(np.nanpercentile(ttft_ms, 99)),
        mean_tpot_ms=float(np.nanmean(tpot_ms)),
        reused=float(result.num_cached.sum() / result.num_prompt.sum()),
        peak_nbytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
    )
    print(msgspec.json.encode(outcome).decode())


def _constant(name: str) -> FastWorkload:
    arrival_us = constant_arrivals_us(name)
    count = len(arrival_us)
    num_prompt, num_output = CONSTANT_LENGTHS
    return FastWorkload(
        arrival_us=arrival_us,
        num_prompt=np.full(count, num_prompt, np.int64),
        num_output=np.full(count, num_output, np.int64),
        hash_offsets=np.zeros(count + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def _first(workload: FastWorkload, count: int) -> FastWorkload:
    offsets = workload.hash_offsets[: count + 1]
    return FastWorkload(
        arrival_us=workload.arrival_us[:count],
        num_prompt=workload.num_prompt[:count],
        num_output=workload.num_output[:count],
        hash_offsets=offsets,
        hash_ids=workload.hash_ids[: offsets[-1]],
        tokens_per_hash=workload.tokens_per_hash,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
