"""Routes by queue, by turn, by chance and by prefix: the source is priced apart from the decode."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    BEFORE,
    BEST_BLOCKS,
    BYTES_PER_US,
    COMPUTE,
    DECODE_TURN,
    DECODES,
    DEPTH,
    DRAW,
    FETCH_BEFORE,
    FETCH_COMPUTE,
    HAS_MIXED,
    NO_ROOM,
    NUM_DECODES,
    NUM_SOURCES,
    PENDING_TOKENS,
    PENDING_US,
    PREFILL_TURN,
    PRICE,
    RANK,
    ROUTED,
    SOURCES,
    TAKEN,
    THRESHOLD,
    Fleet,
    cheapest,
    fastest_decode,
    least_loaded,
    survey,
)
from baton.sim.fast.routes_price import (
    decide,
    gate,
    set_fetched_terms,
    set_local_terms,
)

(
    SHORTEST_QUEUE,
    DISTSERVE,
    LOAD_BALANCE,
    RANDOM,
    ROUND_ROBIN,
    TOKENS,
    LOCAL_CACHE,
    GLOBAL_CACHE,
    MEMSERVE,
    CONDUCTOR,
    PAIR,
) = range(11)


@compiled
def by_queue(fleet: Fleet, policy: int) -> int:
    """Shortest queue, DistServe, load balance, random, round robin, and Splitwise's tokens."""
    if not survey(fleet):
        return NO_ROOM
    if policy == ROUND_ROBIN:
        _price_by_turn(fleet, PREFILL_TURN)
    elif policy == RANDOM:
        _price_by_chance(fleet)
    else:
        _price_by_load(fleet, policy)
    prefill = cheapest(fleet)
    price = fleet.clocks[prefill, PRICE]
    if fleet.counts[HAS_MIXED]:
        decode = prefill
    elif policy == TOKENS:
        decode = _fewest_tokens(fleet)
    elif policy == ROUND_ROBIN:
        decode = _next_turn(fleet)
    else:
        decode = least_loaded(fleet, DECODES, fleet.counts[NUM_DECODES])
    decide(fleet, prefill, decode, False, price)
    return ROUTED


@compiled
def by_prefix(fleet: Fleet, policy: int) -> int:
    """Prefix and queue, with or without a copy of the best prefix: local, MemServe, Mooncake."""
    if not survey(fleet):
        return NO_ROOM
    set_local_terms(fleet)
    set_fetched_terms(fleet)
    is_mooncake = policy in (GLOBAL_CACHE, CONDUCTOR)
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        bid = fleet.clocks[worker]
        if is_mooncake and _is_remote(fleet, worker):
            bid[PRICE] = bid[PENDING_US] + (bid[FETCH_BEFORE] + bid[FETCH_COMPUTE])
        else:
            bid[PRICE] = bid[PENDING_US] + (bid[BEFORE] + bid[COMPUTE])
    prefill = cheapest(fleet)
    bid = fleet.clocks[prefill]
    fetches = is_mooncake and _is_remote(fleet, prefill)
    if policy == MEMSERVE:
        fetched_us = bid[FETCH_BEFORE] + bid[FETCH_COMPUTE]
        fetches = fetched_us < math.inf and fetched_us <= bid[BEFORE] + bid[COMPUTE]
    decode = prefill
    if not fleet.counts[HAS_MIXED]:
        count = fleet.counts[NUM_DECODES]
        if policy == CONDUCTOR:
            decode = fastest_decode(fleet, DECODES, count)
        else:
            decode = least_loaded(fleet, DECODES, count)
    decide(fleet, prefill, decode, fetches, bid[PRICE])
    return gate(fleet) if policy == CONDUCTOR else ROUTED


@compiled
def _is_remote(fleet: Fleet, worker: int) -> bool:
    """The best prefix exceeds its own by the threshold: what has to be copied is priced."""
    if fleet.values[BYTES_PER_US] == 0.0:
        return False
    ratio = max(1.0, fleet.values[THRESHOLD])
    return bool(fleet.counts[BEST_BLOCKS] > fleet.loads[worker, DEPTH] * ratio)


@compiled
def _price_by_load(fleet: Fleet, policy: int) -> None:
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        price = float(fleet.loads[worker, PENDING_TOKENS])
        if policy == LOAD_BALANCE:
            price = fleet.clocks[worker, PENDING_US]
        elif policy == TOKENS and fleet.counts[HAS_MIXED]:
            price += fleet.loads[worker, TAKEN]
        fleet.clocks[worker, PRICE] = price


@compiled
def _price_by_chance(fleet: Fleet) -> None:
    """The source whose place among the names is drawn."""
    count = fleet.counts[NUM_SOURCES]
    for k in range(count):
        one, place = fleet.loads[k, SOURCES], 0
        for other in range(count):
            place += fleet.loads[fleet.loads[other, SOURCES], RANK] < fleet.loads[one, RANK]
        fleet.clocks[one, PRICE] = 0.0 if place == fleet.counts[DRAW] % count else 1.0


@compiled
def _price_by_turn(fleet: Fleet, turn: int) -> None:
    """How many turns each source has to wait."""
    num_workers, count = len(fleet.loads), fleet.counts[NUM_SOURCES]
    for k in range(count):
        worker = fleet.loads[k, SOURCES]
        waits = (fleet.loads[worker, RANK] - fleet.counts[turn]) % num_workers
        fleet.clocks[worker, PRICE] = float(waits)
    fleet.counts[turn] = fleet.loads[cheapest(fleet), RANK] + 1


@compiled
def _next_turn(fleet: Fleet) -> int:
    num_workers, best = len(fleet.loads), fleet.loads[0, DECODES]
    for k in range(1, fleet.counts[NUM_DECODES]):
        worker = fleet.loads[k, DECODES]
        waits = (fleet.loads[worker, RANK] - fleet.counts[DECODE_TURN]) % num_workers
        if waits < (fleet.loads[best, RANK] - fleet.counts[DECODE_TURN]) % num_workers:
            best = worker
    fleet.counts[DECODE_TURN] = fleet.loads[best, RANK] + 1
    return int(best)


@compiled
def _fewest_tokens(fleet: Fleet) -> int:
    """The decode worker with the shortest queue in tokens, then the name."""
    best, loads = fleet.loads[0, DECODES], fleet.loads
    for k in range(1, fleet.counts[NUM_DECODES]):
        worker = fleet.loads[k, DECODES]
        if loads[worker, TAKEN] != loads[best, TAKEN]:
            if loads[worker, TAKEN] < loads[best, TAKEN]:
                best = worker
        elif loads[worker, RANK] < loads[best, RANK]:
            best = worker
    return int(best)
