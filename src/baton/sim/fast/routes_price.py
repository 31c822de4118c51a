"""The two clocks of a route, from rates, reuse and load: `policy.routing.price` in numbers."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    ADMISSION_US,
    BEFORE,
    BEST_BLOCKS,
    BEST_OWNER,
    COMPUTE,
    DEPTH,
    FETCH_BEFORE,
    FETCH_COMPUTE,
    MEMORY_DEPTH,
    MISSES_TPOT,
    MISSES_TTFT,
    NO_ROOM,
    NOBODY,
    NUM_SOURCES,
    PAIR_US,
    PENDING_US,
    ROUTED,
    TOKEN_US,
    TPOT_US,
    Fleet,
    Question,
    Route,
)


@compiled
def no_room() -> Route:
    """The request waits."""
    return Route(NO_ROOM, NOBODY, NOBODY, NOBODY, 0, 0.0, 0.0, 0.0)


@compiled
def max_cached(question: Question) -> int:
    """Most blocks that a prefill can reuse: the last row is always computed."""
    return (question.num_tokens - 1) // question.block_size


@compiled
def prefill_us(fleet: Fleet, worker: int, num_tokens: int, cached: int) -> float:
    """Rows that are not cached, and their causal pairs with everything before them."""
    rows = num_tokens - cached
    pairs = rows * cached + rows * (rows + 1) / 2
    clocks = fleet.clocks
    return float(clocks[worker, TOKEN_US] * rows + clocks[worker, PAIR_US] * pairs)


@compiled
def transfer_us(question: Question, nbytes: float) -> float:
    """Time on the link; nothing is free to move once a rate is known."""
    if nbytes == 0.0 or question.bytes_per_us == 0.0:
        return 0.0
    return nbytes / question.bytes_per_us + question.overhead_us


@compiled
def exposed_us(question: Question, compute_us: float, moved_us: float) -> float:
    """What is left of a transfer after the last layer is ready."""
    if not question.is_layered:
        return moved_us
    num_layers = question.num_layers
    return max(moved_us / num_layers, moved_us - compute_us * (num_layers - 1) / num_layers)


@compiled
def missing_tokens(fleet: Fleet, question: Question, decode: int) -> int:
    """Rows that are not in a decode worker's own memory, and have to be sent."""
    held = fleet.loads[decode, MEMORY_DEPTH] * question.block_size
    return question.num_tokens - int(min(held, question.num_tokens))


@compiled
def set_local_terms(fleet: Fleet, question: Question) -> None:
    """Prefill at each source from its own prefix."""
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        held = min(fleet.loads[worker, DEPTH], max_cached(question)) * question.block_size
        fleet.bids[worker, BEFORE] = 0.0
        fleet.bids[worker, COMPUTE] = prefill_us(fleet, worker, question.num_tokens, held)


@compiled
def set_fetched_terms(fleet: Fleet, question: Question) -> None:
    """Prefill at each source after the best prefix was copied there; infinite if it cannot be."""
    best, rate = fleet.found[BEST_BLOCKS], question.bytes_per_us
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        depth = fleet.loads[worker, DEPTH]
        fleet.bids[worker, FETCH_BEFORE], fleet.bids[worker, FETCH_COMPUTE] = math.inf, 0.0
        if best == 0 or rate == 0.0:
            continue
        cached = best * question.block_size
        fleet.bids[worker, FETCH_COMPUTE] = prefill_us(fleet, worker, question.num_tokens, cached)
        if depth < best:
            block_us = question.block_size * question.bytes_per_token / rate
            wait_us = (best - depth) * block_us + question.overhead_us
            fleet.bids[worker, FETCH_BEFORE] = wait_us


@compiled
def decide(
    fleet: Fleet, question: Question, prefill: int, decode: int, fetches: bool, price: float
) -> Route:
    """A route with both clocks predicted for the chosen pair alone."""
    size, clocks = question.block_size, fleet.clocks
    local = min(fleet.loads[prefill, DEPTH], max_cached(question))
    before_us, blocks = clocks[prefill, PENDING_US], local
    if fetches:
        blocks = fleet.found[BEST_BLOCKS]
        nbytes = (blocks - local) * (size * question.bytes_per_token)
        before_us += transfer_us(question, nbytes)
    compute_us = prefill_us(fleet, prefill, question.num_tokens, blocks * size)
    ttft_us = before_us + compute_us + clocks[decode, ADMISSION_US]
    if decode != prefill:
        nbytes = missing_tokens(fleet, question, decode) * question.bytes_per_token
        ttft_us += exposed_us(question, compute_us, transfer_us(question, nbytes))
    owner = fleet.found[BEST_OWNER] if fetches else NOBODY
    return Route(
        ROUTED,
        prefill,
        decode,
        owner,
        blocks if fetches else 0,
        ttft_us,
        float(clocks[decode, TPOT_US]),
        price,
    )


@compiled
def gate(question: Question, route: Route) -> Route:
    """Refused where a clock would miss its target."""
    code = ROUTED
    if question.tpot_slo_us > 0.0 and route.tpot_us > question.tpot_slo_us:
        code = MISSES_TPOT
    elif question.ttft_slo_us > 0.0 and route.ttft_us > question.ttft_slo_us:
        code = MISSES_TTFT
    return Route(
        code,
        route.prefill,
        route.decode,
        route.fetch_owner,
        route.fetch_blocks,
        route.ttft_us,
        route.tpot_us,
        route.price,
    )
