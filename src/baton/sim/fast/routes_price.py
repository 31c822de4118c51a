"""The two clocks of a route, from rates, reuse and load: `policy.routing.price` in numbers."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    ADMISSION_US,
    BEFORE,
    BEST_BLOCKS,
    BEST_OWNER,
    BLOCK_SIZE,
    BYTES_PER_US,
    CHOSEN_DECODE,
    CHOSEN_PREFILL,
    CHOSEN_PRICE,
    CHOSEN_TPOT_US,
    CHOSEN_TTFT_US,
    COMPUTE,
    DEPTH,
    FETCH_BEFORE,
    FETCH_BLOCKS,
    FETCH_COMPUTE,
    FETCH_OWNER,
    IS_LAYERED,
    MEMORY_DEPTH,
    MISSES_TPOT,
    MISSES_TTFT,
    NOBODY,
    NUM_LAYERS,
    NUM_SOURCES,
    NUM_TOKENS,
    OVERHEAD_US,
    PAIR_US,
    PENDING_US,
    ROUTED,
    SOURCES,
    TOKEN_NBYTES,
    TOKEN_US,
    TPOT_SLO_US,
    TPOT_US,
    TTFT_SLO_US,
    Fleet,
    max_cached,
)


@compiled
def prefill_us(fleet: Fleet, worker: int, cached: int) -> float:
    """Rows that are not cached, and their causal pairs with everything before them."""
    rows = fleet.counts[NUM_TOKENS] - cached
    pairs = rows * cached + rows * (rows + 1) / 2
    clocks = fleet.clocks
    return float(clocks[worker, TOKEN_US] * rows + clocks[worker, PAIR_US] * pairs)


@compiled
def transfer_us(fleet: Fleet, nbytes: float) -> float:
    """Time on the link; nothing is free to move once a rate is known."""
    if nbytes == 0.0 or fleet.values[BYTES_PER_US] == 0.0:
        return 0.0
    return float(nbytes / fleet.values[BYTES_PER_US] + fleet.values[OVERHEAD_US])


@compiled
def exposed_us(fleet: Fleet, compute_us: float, moved_us: float) -> float:
    """What is left of a transfer after the last layer is ready."""
    if not fleet.counts[IS_LAYERED]:
        return moved_us
    num_layers = fleet.counts[NUM_LAYERS]
    last_us = moved_us / num_layers
    return float(max(last_us, moved_us - compute_us * (num_layers - 1) / num_layers))


@compiled
def missing_tokens(fleet: Fleet, decode: int) -> int:
    """Rows that are not in a decode worker's own memory, and have to be sent."""
    held = fleet.loads[decode, MEMORY_DEPTH] * fleet.counts[BLOCK_SIZE]
    return int(fleet.counts[NUM_TOKENS] - min(held, fleet.counts[NUM_TOKENS]))


@compiled
def set_local_terms(fleet: Fleet) -> None:
    """Prefill at each source from its own prefix."""
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        held = min(fleet.loads[worker, DEPTH], max_cached(fleet)) * fleet.counts[BLOCK_SIZE]
        fleet.clocks[worker, BEFORE] = 0.0
        fleet.clocks[worker, COMPUTE] = prefill_us(fleet, worker, held)


@compiled
def set_fetched_terms(fleet: Fleet) -> None:
    """Prefill at each source after the best prefix was copied there; infinite if it cannot be."""
    best, rate = fleet.counts[BEST_BLOCKS], fleet.values[BYTES_PER_US]
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        depth = fleet.loads[worker, DEPTH]
        fleet.clocks[worker, FETCH_BEFORE], fleet.clocks[worker, FETCH_COMPUTE] = math.inf, 0.0
        if best == 0 or rate == 0.0:
            continue
        cached = best * fleet.counts[BLOCK_SIZE]
        fleet.clocks[worker, FETCH_COMPUTE] = prefill_us(fleet, worker, cached)
        if depth < best:
            block_us = fleet.counts[BLOCK_SIZE] * fleet.values[TOKEN_NBYTES] / rate
            wait_us = (best - depth) * block_us + fleet.values[OVERHEAD_US]
            fleet.clocks[worker, FETCH_BEFORE] = wait_us


@compiled
def decide(fleet: Fleet, prefill: int, decode: int, fetches: bool, price: float) -> None:
    """Answer with a route, with both clocks predicted for the chosen pair alone."""
    counts, values, clocks = fleet.counts, fleet.values, fleet.clocks
    local = min(fleet.loads[prefill, DEPTH], max_cached(fleet))
    before_us, blocks = clocks[prefill, PENDING_US], local
    if fetches:
        blocks = counts[BEST_BLOCKS]
        nbytes = (blocks - local) * (counts[BLOCK_SIZE] * values[TOKEN_NBYTES])
        before_us += transfer_us(fleet, nbytes)
    compute_us = prefill_us(fleet, prefill, blocks * counts[BLOCK_SIZE])
    ttft_us = before_us + compute_us + clocks[decode, ADMISSION_US]
    if decode != prefill:
        nbytes = missing_tokens(fleet, decode) * values[TOKEN_NBYTES]
        ttft_us += exposed_us(fleet, compute_us, transfer_us(fleet, nbytes))
    counts[CHOSEN_PREFILL], counts[CHOSEN_DECODE] = prefill, decode
    counts[FETCH_OWNER] = counts[BEST_OWNER] if fetches else NOBODY
    counts[FETCH_BLOCKS] = blocks if fetches else 0
    values[CHOSEN_TTFT_US], values[CHOSEN_TPOT_US] = ttft_us, clocks[decode, TPOT_US]
    values[CHOSEN_PRICE] = price


@compiled
def gate(fleet: Fleet) -> int:
    """Whether a clock of the answer would miss its target."""
    values = fleet.values
    if values[TPOT_SLO_US] > 0.0 and values[CHOSEN_TPOT_US] > values[TPOT_SLO_US]:
        return MISSES_TPOT
    if values[TTFT_SLO_US] > 0.0 and values[CHOSEN_TTFT_US] > values[TTFT_SLO_US]:
        return MISSES_TTFT
    return ROUTED
