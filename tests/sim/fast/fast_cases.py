"""Deployments and workloads that both hosts run: the production nodes, and the fast loop."""

import dataclasses

import numpy as np

from baton.config import load_config
from baton.core.ids import Role, Schedule
from baton.core.layout import KVLayout
from baton.hardware.curves import Grid, Line, StepCurves, StepSide
from baton.policy.service_profile import StepOverhead, TransferCost
from baton.sim.fast.costs import CurvesCosts
from baton.sim.fast.deployment import Delays, Deployment, Handoff, Topology, WorkerGroup
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import pack
from baton.sim.replay import Delays as ReplayDelays
from baton.sim.replay import ReplaySetup, replay_counted
from baton.sim.simulate.plan import HARDWARE_DEFAULTS
from baton.workload.request import Workload, WorkloadRequest

TOKEN_NBYTES, NUM_LAYERS, BLOCK_SIZE = 131_072, 8, 16
WHOLE = StepCurves(
    sides=(
        StepSide(
            step_us=4000.0,
            prefill_rows=Line(knots=(0.0, 1000.0), values_us=(0.0, 60_000.0)),
            chunk_us=100.0,
            gathered_us=1.0,
            decode_row_us=20.0,
        ),
    ),
    source="whole microseconds",
)
"""The production hosts round times up: where steps take whole ones both must agree exactly."""
ROUGH = StepCurves(
    sides=(
        StepSide(
            step_us=3012.7,
            rows=Line(knots=(0.0, 300.0, 4000.0), values_us=(0.0, 4321.1, 200_123.4)),
            pair_us=0.0037,
            decode_grid=Grid(
                x=(1.0, 8.0, 64.0),
                y=(128.0, 1024.0, 8192.0),
                values_us=((310.2, 340.9, 800.1), (500.5, 700.7, 3100.3), (900.1, 2400.2, 9000.9)),
            ),
        ),
        StepSide(step_us=5000.3, decode_token_us=0.31, decode_row_us=11.0),
    ),
    source="two sides",
)
PREFILL, DECODE, MIXED = Role.PREFILL, Role.DECODE, Role.MIXED


def requests(number, rate_per_s, *, seed=1, prompt=900.0, output=40.0):
    """Poisson arrivals, log-normal lengths."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1e6 / rate_per_s, number)).astype(int)
    prompts = np.clip(rng.lognormal(np.log(prompt), 0.8, number), 16, 6000).astype(int)
    outputs = np.clip(rng.lognormal(np.log(output), 0.8, number), 1, 600).astype(int)
    return Workload(
        name="drawn",
        source="drawn",
        requests=tuple(
            WorkloadRequest(arrival_us=int(t), num_prompt_tokens=int(p), num_output_tokens=int(o))
            for t, p, o in zip(arrivals, prompts, outputs, strict=True)
        ),
    )


def sessions(number, rate_per_s, *, seed=3, num_sessions=12, num_shared=20):
    """Prompts that begin alike, and grow with each turn of a session."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1e6 / rate_per_s, number)).astype(int)
    begin = tuple(range(1, num_shared + 1))
    history: dict[int, tuple[int, ...]] = {}
    found, fresh = [], 1000
    for arrival_us in arrivals.tolist():
        session, added = int(rng.integers(num_sessions)), int(rng.integers(2, 30))
        ids = history.get(session, begin) + tuple(range(fresh, fresh + added))
        fresh += added
        history[session] = ids if len(ids) < 200 else begin
        found.append(
            WorkloadRequest(
                arrival_us=arrival_us,
                num_prompt_tokens=len(ids) * BLOCK_SIZE + int(rng.integers(BLOCK_SIZE)),
                num_output_tokens=int(rng.integers(1, 60)),
                hash_ids=ids,
            )
        )
    return Workload(name="s", source="s", requests=tuple(found), tokens_per_hash=BLOCK_SIZE)


def replayed(
    workload,
    roles,
    *,
    curves=WHOLE,
    num_blocks=20_000,
    link=50_000.0,
    delay_us=0,
    overhead=(0.0, 0.0),
    schedule="layer",
    route="shortest_queue",
    keeps=True,
    **worker,
):
    """First and last token of each request by the production nodes, and what they counted."""
    names = {"batch_policy": "sarathi_serve", "max_batch_tokens": 512, "max_num_seqs": 64} | worker
    config = load_config(
        None,
        [
            *HARDWARE_DEFAULTS,
            *(f"worker.{name}={value}" for name, value in names.items()),
            f"transfer.schedule={schedule}",
            f"router.policy={route}",
            f"cache.milestone={'prompt' if keeps else 'none'}",
        ],
    )
    longest = max(one.num_prompt_tokens + one.num_output_tokens for one in workload.requests)
    setup = ReplaySetup(
        roles=roles,
        worker=config.worker,
        transfer=config.transfer,
        router=config.router,
        cache=config.cache,
        delays=ReplayDelays(control_us=delay_us, gateway_in_us=0, gateway_out_us=0),
        max_model_len=longest,
        num_blocks=num_blocks,
        shares_memory=False,
    )
    layout = KVLayout(
        num_layers=NUM_LAYERS, num_kv_heads=1, head_dim=TOKEN_NBYTES // NUM_LAYERS // 4,
        block_size=1, dtype_k="bfloat16", dtype_v="bfloat16",
    )  # fmt: skip
    transfer = TransferCost(
        bytes_per_us=link, operation_us=0.0, digest_bytes_per_us=0.0, checksum=False
    )
    costs = CurvesCosts(
        curves, layout, name="m", transfer=transfer,
        overhead=StepOverhead(step_us=overhead[0], sequence_us=overhead[1]),
    )  # fmt: skip
    records, counts = replay_counted(workload, setup, costs)
    first = np.array([one.token_times_us[0] for one in records], np.float64)
    last = np.array([one.token_times_us[-1] for one in records], np.float64)
    return first, last, counts


def deployment_of(
    roles,
    *,
    curves=WHOLE,
    num_blocks=20_000,
    link=50_000.0,
    delay_us=0,
    overhead=(0.0, 0.0),
    schedule="layer",
    route="shortest_queue",
    keeps=True,
    **worker,
):
    """The same for the fast loop."""
    names = {"batch_policy": "sarathi_serve", "max_batch_tokens": 512, "max_num_seqs": 64} | worker
    groups = tuple(
        WorkerGroup(
            name=str(role), role=role, num_workers=1, curves=curves,
            kv_tokens=num_blocks * BLOCK_SIZE, keeps_prefixes=keeps,
            step_overhead_us=overhead[0], sequence_overhead_us=overhead[1], **names,
        )
        for role in roles
    )  # fmt: skip
    return Deployment(
        groups=groups,
        handoff=Handoff(
            token_nbytes=TOKEN_NBYTES, num_layers=NUM_LAYERS, schedule=Schedule(schedule)
        ),
        # The production hosts send one chunk after another, from one thread of the sender.
        topology=Topology(egress_bytes_per_us=link, ingress_bytes_per_us=1e9, latency_us=0.0),
        delays=Delays(control_us=delay_us, heartbeat_us=1e6),
        route=route,
    )  # fmt: skip


def packed(workload):
    """With the longest answer that each client asks for: the production clients ask for theirs."""
    plain = pack(workload)
    return dataclasses.replace(plain, max_output=plain.num_output)


def fast(workload, roles, **options):
    """What the fast loop finds."""
    return simulate_fast(deployment_of(roles, **options), packed(workload))
