"""A machine made up for tests: step times that a reader can add up in the head."""

import numpy as np

from baton.hardware.curves import Grid, Line, StepCurves, StepSide
from baton.hardware.parallel import Parallel
from baton.planner.placement.cluster import Cluster
from baton.planner.placement.space import Candidate, Serving, Space
from baton.sim.fast.workload import FastWorkload

TOKEN_NBYTES = 100_000


def curves(parallel):
    """Prefill 5 ms and 0.1 ms a token, decode 10 ms and 0.05 ms a row, both over TP ^ 0.8."""
    speed = parallel.tp**0.8 * parallel.pp
    side = StepSide(
        prefill_us=5000.0 / speed,
        prefill_rows=Line(knots=(0.0, 1.0), values_us=(0.0, 100.0 / speed)),
        decode_grid=Grid(
            x=(0.0, 1.0),
            y=(0.0, 1.0),
            values_us=((10_000.0 / speed,) * 2, (10_050.0 / speed,) * 2),
        ),
    )
    return StepCurves(sides=(side,), source="made up", pipeline=parallel.pp)


def candidate(tp=1, pp=1):
    parallel = Parallel(tp=tp, pp=pp)
    return Candidate(parallel=parallel, curves=curves(parallel), kv_tokens=40_000 * parallel.gpus)


def space(cuts=((1, 1), (2, 1)), num_nodes=1, gpus_per_node=4, node_bytes_per_s=25e9):
    return Space(
        candidates=tuple(candidate(*cut) for cut in cuts),
        skipped=(),
        cluster=Cluster(
            num_nodes=num_nodes,
            gpus_per_node=gpus_per_node,
            inner_bytes_per_s=300e9,
            node_bytes_per_s=node_bytes_per_s,
        ),
        serving=Serving(keeps_prefixes=False, prefill_batches=(2048,)),
        token_nbytes=TOKEN_NBYTES,
        num_layers=4,
        copy_nbytes=10**9,
    )


def workload(num=500, prompt=400.0, output=60.0, sigma=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return FastWorkload(
        arrival_us=np.arange(num) * 1e6,
        num_prompt=np.clip(rng.lognormal(np.log(prompt), sigma, num), 1, 4000).astype(np.int64),
        num_output=np.clip(rng.lognormal(np.log(output), sigma, num), 1, 1000).astype(np.int64),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        source="made up",
    )
