"""A deployment and a workload as the state that the loop starts from."""

import math

import numpy as np

from baton.core.ids import Role, Schedule
from baton.errors import ConfigError
from baton.hardware.evaluate import stack
from baton.policy.batching.policies import POLICIES
from baton.sim.fast import columns as c
from baton.sim.fast.build_extras import build_extras
from baton.sim.fast.deployment import Deployment, WorkerGroup
from baton.sim.fast.extras import Extras
from baton.sim.fast.gaps import NUM_BINS
from baton.sim.fast.network import make_network
from baton.sim.fast.network_state import Network
from baton.sim.fast.routes import route_code
from baton.sim.fast.state import Floats, Ints, State
from baton.sim.fast.workload import FastWorkload

_ROLES = {Role.PREFILL: c.PREFILL, Role.DECODE: c.DECODE, Role.MIXED: c.MIXED}
_WHEEL = 1024
_HEAP = 4096


def workers_of(deployment: Deployment) -> list[WorkerGroup]:
    """The group of each worker."""
    return [group for group in deployment.groups for _ in range(group.num_workers)]


def build(deployment: Deployment, workload: FastWorkload) -> tuple[State, Network, Extras | None]:
    """Nobody has arrived, and everybody is idle."""
    num_requests = len(workload)
    if num_requests == 0:
        raise ConfigError("workload: no requests; give at least one")
    if np.any(np.diff(workload.arrival_us) < 0):
        raise ConfigError("workload: arrivals are not in order of time; sort them")
    request_us, requests = _requests(workload)
    worker_us, workers, lanes, curves = _workers(deployment, num_requests)
    groups = workers_of(deployment)
    num_lanes, most_seqs = len(lanes), int(workers[:, c.W_MAX_SEQS].max())
    most_chunks = max(1, min(most_seqs, int(workers[:, c.W_MAX_TOKENS].max()), num_requests))
    furthest = max(g.growth_tokens + 2 * g.block_size + 2 for g in groups)
    growing = 1 << math.ceil(math.log2(furthest))
    # An event sets at most so many others: as many flows as there are admitted end together.
    margin = int(workers[:, c.W_MAX_ADMITTED].sum()) + 8 * most_chunks + 64
    num_events = _HEAP + 2 * margin + 2 * len(deployment.failures)
    numbers, counts = _globals(deployment, num_requests, margin)
    state = State(
        request_us=request_us,
        requests=requests,
        worker_us=worker_us,
        workers=workers,
        lane_us=np.zeros((num_lanes, c.NUM_L_TIMES), np.float64),
        lanes=lanes,
        finishing=np.zeros((num_lanes, _WHEEL), np.int64),
        growing=np.zeros((num_lanes, 2 * growing), np.int64),
        chunks=np.zeros((num_lanes, most_chunks, 2), np.int64),
        chunk_rows=np.zeros((2, most_chunks), np.float64),
        event_us=np.zeros(num_events, np.float64),
        events=np.zeros((num_events, 4), np.int64),
        numbers=numbers,
        counts=counts,
        gaps=np.zeros(NUM_BINS, np.int64),
        curves=curves,
    )
    network = make_network(deployment.topology, len(groups), num_requests)
    _set_failures(state, deployment)
    return state, network, build_extras(deployment, workload, state)


def _requests(workload: FastWorkload) -> tuple[Floats, Ints]:
    num_requests = len(workload)
    request_us = np.full((num_requests, c.NUM_R_TIMES), np.nan, np.float64)
    requests = np.zeros((num_requests, c.NUM_R_NUMBERS), np.int64)
    request_us[:, c.R_ARRIVAL_US] = workload.arrival_us
    requests[:, c.R_PROMPT] = np.maximum(1, workload.num_prompt)
    requests[:, c.R_OUTPUT] = np.maximum(1, workload.num_output)
    bound = workload.max_output
    requests[:, c.R_BOUND] = requests[:, c.R_OUTPUT].max() if bound is None else bound
    requests[:, c.R_PREFILL] = requests[:, c.R_DECODE] = -1
    return request_us, requests


def _workers(deployment: Deployment, num_requests: int) -> tuple[Floats, Ints, Ints, Floats]:
    groups = workers_of(deployment)
    distinct = list(dict.fromkeys(group.curves for group in groups))
    curves, starts = stack([one.packed() for one in distinct])
    stages = max(group.curves.pipeline for group in groups)
    worker_us = np.zeros((len(groups), c.W_STAGES + stages), np.float64)
    workers = np.zeros((len(groups), c.NUM_W_NUMBERS), np.int64)
    owners: list[int] = []
    for number, group in enumerate(groups):
        row = workers[number]
        row[c.W_FIRST_LANE], row[c.W_NUM_LANES] = len(owners), group.curves.pipeline
        owners += [number] * group.curves.pipeline
        row[c.W_CURVES] = starts[distinct.index(group.curves)]
        _describe(row, group, num_requests)
        row[c.W_PEERS_FIRST], row[c.W_PEERS_NUM] = number, 1
        if group.steps_together:
            row[c.W_PEERS_FIRST] = groups.index(group)
            row[c.W_PEERS_NUM] = group.num_workers
        worker_us[number, c.W_STEP_US] = group.step_overhead_us
        worker_us[number, c.W_SEQUENCE_US] = group.sequence_overhead_us
    lanes = np.zeros((len(owners), c.NUM_L_NUMBERS), np.int64)
    lanes[:, c.L_WORKER] = owners
    return worker_us, workers, lanes, curves


def _describe(row: Ints, group: WorkerGroup, num_requests: int) -> None:
    policy = POLICIES[group.batch_policy]
    num_blocks = group.kv_tokens // group.block_size
    if num_blocks < 2:
        raise ConfigError(
            f"{group.name}: kv_tokens {group.kv_tokens} are {num_blocks} blocks of "
            f"{group.block_size}; at least 2"
        )
    row[c.W_ROLE] = _ROLES[group.role]
    row[c.W_POLICY] = c.POLICY_CODES[group.batch_policy]
    row[c.W_NUM_BLOCKS] = row[c.W_FREE] = num_blocks
    row[c.W_BLOCK_SIZE] = group.block_size
    row[c.W_MAX_TOKENS] = group.max_batch_tokens
    row[c.W_MAX_SEQS] = min(group.max_num_seqs, num_requests)
    together = 2 if policy.releases_together else 1
    row[c.W_MAX_ADMITTED] = group.max_num_seqs * together * group.curves.pipeline
    row[c.W_MAX_ADMITTED] = min(row[c.W_MAX_ADMITTED], num_requests)
    row[c.W_GROWTH], row[c.W_GRID] = group.growth_tokens, group.chunk_grid
    row[c.W_MAX_PREEMPTIONS] = group.max_preemptions
    row[c.W_RESERVES_WHOLE] = policy.reserves_whole_length
    row[c.W_IS_UP], row[c.W_KEEPS] = 1, group.keeps_prefixes
    row[c.W_KEEPS_PREEMPTED], row[c.W_QUEUES] = group.keeps_preempted, group.queues_at_worker
    row[c.W_LOOKS_AHEAD], row[c.W_RECOMPUTES] = group.looks_ahead, group.recomputes_as_prompt


def _set_failures(state: State, deployment: Deployment) -> None:
    """As the first events; in order of time they are a heap already."""
    moments = [(one.at_us, c.E_DOWN, one.worker) for one in deployment.failures]
    moments += [(one.at_us + one.down_us, c.E_UP, one.worker) for one in deployment.failures]
    for number, (at_us, kind, worker) in enumerate(sorted(moments), start=1):
        state.event_us[number] = at_us
        state.events[number] = (number, kind, worker, 0)
    state.counts[c.C_HEAP] = state.counts[c.C_SEQUENCE] = len(moments)


def _globals(deployment: Deployment, num_requests: int, margin: int) -> tuple[Floats, Ints]:
    numbers, counts = np.zeros(c.NUM_N, np.float64), np.zeros(c.NUM_C, np.int64)
    delays, handoff = deployment.delays, deployment.handoff
    numbers[c.N_CONTROL_US] = delays.control_us
    numbers[c.N_IN_US], numbers[c.N_OUT_US] = delays.gateway_in_us, delays.gateway_out_us
    numbers[c.N_HEARTBEAT_US] = delays.heartbeat_us
    numbers[c.N_LATENCY_US] = deployment.topology.latency_us
    if handoff is not None:
        numbers[c.N_TOKEN_NBYTES] = handoff.token_nbytes
        counts[c.C_NUM_LAYERS] = handoff.num_layers
        counts[c.C_IS_LAYERED] = handoff.schedule is Schedule.LAYER
        counts[c.C_ONLY_MISSING] = handoff.only_missing
    counts[c.C_NUM_OPEN] = num_requests
    counts[c.C_MAX_WAITING] = deployment.max_waiting
    counts[c.C_MARGIN] = margin
    numbers[c.N_TTFT_SLO_US] = deployment.ttft_slo_us
    numbers[c.N_TPOT_SLO_US] = deployment.tpot_slo_us
    counts[c.C_ROUTE] = route_code(deployment.route)
    if deployment.spill is not None:
        counts[c.C_SPILL] = max(1, deployment.spill.pending_tokens)
    return numbers, counts
