"""Deployments for the fast host: one phase alone, a pool of mixed instances, a split."""

import math

import msgspec
import numpy as np

from baton.core.ids import Role
from baton.hardware.curves import StepCurves, StepSide
from baton.planner.placement.cluster import US_PER_S, Cluster
from baton.planner.placement.packing import Instances, Packing
from baton.planner.placement.space import Candidate, Serving, Space
from baton.sim.fast.deployment import Deployment, Handoff, Topology, WorkerGroup
from baton.sim.fast.workload import FastWorkload

INSTANT = StepCurves(sides=(StepSide(),), source="no time: the phase that is left out")
ENDLESS_TOKENS = 1 << 40
ENDLESS_SEQS = 1 << 20


def prefill_only(
    candidate: Candidate, serving: Serving, max_batch_tokens: int, num: int = 1
) -> Deployment:
    """`simu_prefill`: instances that answer with the first token and are done."""
    group = _group(candidate, serving, Role.MIXED, "prefill", num)
    return Deployment(
        groups=(
            msgspec.structs.replace(
                group,
                batch_policy=serving.prefill_policy,
                max_batch_tokens=max_batch_tokens,
            ),
        ),
        route="shortest_queue",
        delays=serving.delays,
    )


def prompts_alone(workload: FastWorkload) -> FastWorkload:
    """The same requests with one token of answer each, which prefill draws itself."""
    return FastWorkload(
        arrival_us=workload.arrival_us,
        num_prompt=workload.num_prompt,
        num_output=np.ones_like(workload.num_output),
        hash_offsets=workload.hash_offsets,
        hash_ids=workload.hash_ids,
        tokens_per_hash=workload.tokens_per_hash,
        source=f"{workload.source}, prompts alone",
    )


def decode_only(candidate: Candidate, serving: Serving, num: int = 1) -> Deployment:
    """`simu_decode`: prefill and transfer take no time.

    Requests reach decode as they arrive, so as a Poisson process if that is how they are drawn:
    DistServe's own assumption. What prefill leaves is smoother while it is busy.
    """
    prefill = WorkerGroup(
        name="instant",
        role=Role.PREFILL,
        num_workers=1,
        curves=INSTANT,
        kv_tokens=ENDLESS_TOKENS,
        block_size=serving.block_size,
        batch_policy=serving.prefill_policy,
        max_batch_tokens=ENDLESS_SEQS,
        max_num_seqs=ENDLESS_SEQS,
        keeps_prefixes=False,
    )
    decode = _group(candidate, serving, Role.DECODE, "decode", num)
    return Deployment(
        groups=(prefill, decode),
        handoff=Handoff(token_nbytes=1, schedule=serving.schedule),
        topology=Topology(
            inner_bytes_per_us=1e15,
            egress_bytes_per_us=1e15,
            ingress_bytes_per_us=1e15,
            latency_us=0.0,
        ),
        route="shortest_queue",
        delays=serving.delays,
    )


def mixed_pool(
    candidate: Candidate,
    serving: Serving,
    num: int,
    *,
    batch_policy: str = "sarathi_serve",
    max_batch_tokens: int = 2048,
) -> Deployment:
    """Colocated instances behind one queue."""
    group = _group(candidate, serving, Role.MIXED, "mixed", num)
    return Deployment(
        groups=(
            msgspec.structs.replace(
                group, batch_policy=batch_policy, max_batch_tokens=max_batch_tokens
            ),
        ),
        route=serving.route,
        delays=serving.delays,
    )


def split(
    space: Space,
    prefill: Candidate,
    num_prefill: int,
    decode: Candidate,
    num_decode: int,
    topology: Topology,
    prefill_batch_tokens: int,
) -> Deployment:
    """Prefill instances that hand over to decode instances."""
    serving = space.serving
    first = _group(prefill, serving, Role.PREFILL, "prefill", num_prefill)
    return Deployment(
        groups=(
            msgspec.structs.replace(
                first,
                batch_policy=serving.prefill_policy,
                max_batch_tokens=prefill_batch_tokens,
            ),
            _group(decode, serving, Role.DECODE, "decode", num_decode),
        ),
        handoff=Handoff(
            token_nbytes=space.token_nbytes,
            num_layers=space.num_layers,
            schedule=serving.schedule,
        ),
        topology=topology,
        route=serving.route,
        delays=serving.delays,
    )


def free_topology(
    cluster: Cluster, packing: Packing, prefill: Instances, decode: Instances, latency_us: float
) -> Topology:
    """Links of a free packing. A worker over several nodes stands where its first stage does."""
    nodes = tuple(packing.node_of(name, 0) for group in (prefill, decode) for name in group.names)
    return Topology(
        worker_nodes=nodes,
        inner_bytes_per_us=cluster.inner_bytes_per_s / US_PER_S,
        egress_bytes_per_us=cluster.node_bytes_per_s / US_PER_S,
        ingress_bytes_per_us=cluster.node_bytes_per_s / US_PER_S,
        latency_us=latency_us,
    )


def paired_topology(
    cluster: Cluster, num_workers: int, num_segments: int, latency_us: float
) -> Topology:
    """Links of one cell: each node carries its segment's layers over its own inner link."""
    inner = cluster.inner_bytes_per_s / US_PER_S * num_segments
    return Topology(
        worker_nodes=(0,) * num_workers,
        inner_bytes_per_us=inner,
        egress_bytes_per_us=math.inf,
        ingress_bytes_per_us=math.inf,
        latency_us=latency_us,
    )


def _group(candidate: Candidate, serving: Serving, role: Role, name: str, num: int) -> WorkerGroup:
    return WorkerGroup(
        name=name,
        role=role,
        num_workers=num,
        curves=candidate.curves,
        kv_tokens=candidate.kv_tokens,
        gpus=candidate.gpus,
        block_size=serving.block_size,
        max_num_seqs=serving.max_num_seqs,
        keeps_prefixes=serving.keeps_prefixes,
        step_overhead_us=candidate.step_overhead_us,
        sequence_overhead_us=candidate.sequence_overhead_us,
    )
