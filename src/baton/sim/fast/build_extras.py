"""What a deployment needs beyond the plain loop: kept prefixes, and routes that see clocks."""

import numpy as np

from baton.core.ids import Schedule
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.policy.phase_cost import PrefillRows
from baton.sim.fast import columns as c
from baton.sim.fast import routes_fleet as f
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.extras import NUM_ENDS, Extras
from baton.sim.fast.prefixes import make_prefixes
from baton.sim.fast.routes import draws
from baton.sim.fast.routes_fleet import Fleet, make_fleet
from baton.sim.fast.state import Ints, State
from baton.sim.fast.workload import FastWorkload


def build_extras(deployment: Deployment, workload: FastWorkload, state: State) -> Extras | None:
    """None for the shortest queue without targets, where nobody finds a prefix again."""
    groups = [group for group in deployment.groups for _ in range(group.num_workers)]
    per_hash = _per_hash(deployment, workload, state)
    has_targets = deployment.ttft_slo_us > 0 or deployment.tpot_slo_us > 0
    if deployment.route == "shortest_queue" and not per_hash.any() and not has_targets:
        return None
    most = np.zeros(len(groups), np.int64)
    for number, size in enumerate(per_hash.tolist()):
        most[number] = state.workers[number, c.W_NUM_BLOCKS] // size if size else 0
    prefixes = make_prefixes(workload, most)
    fleet = make_fleet(state.workers[:, c.W_ROLE].tolist())
    _describe(fleet, deployment, workload)
    lengths = np.asarray(workload.num_prompt)
    for number, group in enumerate(groups):
        fleet.clocks[number, f.TOKEN_US : f.PAIR_US + 1] = _prefill_rates(group.curves, lengths)
    return Extras(
        prefixes=prefixes,
        fleet=fleet,
        draws=draws(deployment.seed, len(workload)),
        depths=np.zeros(len(groups), np.int64),
        ends=np.zeros((NUM_ENDS, 2), np.float64),
    )


def _per_hash(deployment: Deployment, workload: FastWorkload, state: State) -> Ints:
    """Blocks of a hash block at each worker; 0 where none is kept."""
    size, found = workload.tokens_per_hash, np.zeros(len(state.workers), np.int64)
    if size and len(workload.hash_ids):
        for group in deployment.groups:
            if group.keeps_prefixes and size % group.block_size:
                raise ConfigError(
                    f"{group.name}: block_size {group.block_size} does not divide the workload's "
                    f"{size} tokens of a hash id; choose one that does, or keeps_prefixes=False"
                )
        keeps = state.workers[:, c.W_KEEPS] > 0
        if deployment.handoff is not None and not deployment.handoff.only_missing:
            keeps &= state.workers[:, c.W_ROLE] != c.DECODE
        found[keeps] = size // state.workers[keeps, c.W_BLOCK_SIZE]
    state.workers[:, c.W_PER_HASH] = found
    state.counts[c.C_PER_HASH] = size
    return found


def _describe(fleet: Fleet, deployment: Deployment, workload: FastWorkload) -> None:
    """What every question has in common."""
    handoff, topology = deployment.handoff, deployment.topology
    fleet.counts[f.BLOCK_SIZE] = workload.tokens_per_hash or 1
    if handoff is not None:
        fleet.counts[f.NUM_LAYERS] = handoff.num_layers
        fleet.counts[f.IS_LAYERED] = handoff.schedule is Schedule.LAYER
        fleet.values[f.TOKEN_NBYTES] = handoff.token_nbytes
        fleet.values[f.BYTES_PER_US] = min(
            topology.egress_bytes_per_us, topology.ingress_bytes_per_us
        )
        fleet.values[f.OVERHEAD_US] = topology.latency_us
    fleet.values[f.THRESHOLD] = deployment.balancing_threshold


def _prefill_rates(curves: StepCurves, lengths: Ints) -> tuple[float, float]:
    """Microseconds of a row and of a causal pair, as steps of such prompts would show them."""
    short, long = (int(np.percentile(lengths, q)) for q in (25, 90))
    short_us, long_us = (curves.step_us([PrefillRows(num_rows=n)], ()) for n in (short, long))
    pairs = [n * (n + 1) / 2 for n in (short, long)]
    spread = short * pairs[1] - long * pairs[0]
    if spread > 0:
        pair_us = (short * long_us - long * short_us) / spread
        if pair_us > 0:
            return max(0.0, (long_us - pair_us * pairs[1]) / long), pair_us
    return long_us / long, 0.0
