"""Routes by queue, by turn, by chance and by prefix: the source is priced apart from the decode."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    BEFORE,
    BEST_BLOCKS,
    COMPUTE,
    DEPTH,
    FETCH_BEFORE,
    FETCH_COMPUTE,
    HAS_MIXED,
    NUM_DECODES,
    NUM_SOURCES,
    PENDING_TOKENS,
    PENDING_US,
    PRICE,
    RANK,
    TAKEN,
    Fleet,
    Question,
    Route,
    cheapest,
    fastest_decode,
    least_loaded,
    survey,
)
from baton.sim.fast.routes_price import (
    decide,
    gate,
    no_room,
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
_PREFILL_TURN, _DECODE_TURN = range(2)


@compiled
def by_queue(fleet: Fleet, question: Question, policy: int) -> Route:
    """Shortest queue, DistServe, load balance, random, round robin, and Splitwise's tokens."""
    if not survey(fleet, question):
        return no_room()
    if policy == ROUND_ROBIN:
        _price_by_turn(fleet, _PREFILL_TURN)
    elif policy == RANDOM:
        _price_by_chance(fleet, question)
    else:
        _price_by_load(fleet, policy)
    prefill = cheapest(fleet)
    price = fleet.bids[prefill, PRICE]
    if fleet.found[HAS_MIXED]:
        decode = prefill
    elif policy == TOKENS:
        decode = _fewest_tokens(fleet)
    elif policy == ROUND_ROBIN:
        decode = _next_turn(fleet)
    else:
        decode = least_loaded(fleet, fleet.decodes, fleet.found[NUM_DECODES])
    return decide(fleet, question, prefill, decode, False, price)


@compiled
def by_prefix(fleet: Fleet, question: Question, policy: int) -> Route:
    """Prefix and queue, with or without a copy of the best prefix: local, MemServe, Mooncake."""
    if not survey(fleet, question):
        return no_room()
    set_local_terms(fleet, question)
    set_fetched_terms(fleet, question)
    is_mooncake = policy in (GLOBAL_CACHE, CONDUCTOR)
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        bid, pending_us = fleet.bids[worker], fleet.clocks[worker, PENDING_US]
        if is_mooncake and _is_remote(fleet, question, worker):
            bid[PRICE] = pending_us + (bid[FETCH_BEFORE] + bid[FETCH_COMPUTE])
        else:
            bid[PRICE] = pending_us + (bid[BEFORE] + bid[COMPUTE])
    prefill = cheapest(fleet)
    bid = fleet.bids[prefill]
    fetches = is_mooncake and _is_remote(fleet, question, prefill)
    if policy == MEMSERVE:
        fetched_us = bid[FETCH_BEFORE] + bid[FETCH_COMPUTE]
        fetches = fetched_us < math.inf and fetched_us <= bid[BEFORE] + bid[COMPUTE]
    decode = prefill
    if not fleet.found[HAS_MIXED]:
        count = fleet.found[NUM_DECODES]
        if policy == CONDUCTOR:
            decode = fastest_decode(fleet, fleet.decodes, count)
        else:
            decode = least_loaded(fleet, fleet.decodes, count)
    route = decide(fleet, question, prefill, decode, fetches, bid[PRICE])
    return gate(question, route) if policy == CONDUCTOR else route


@compiled
def _is_remote(fleet: Fleet, question: Question, worker: int) -> bool:
    """The best prefix exceeds its own by the threshold: what has to be copied is priced."""
    if question.bytes_per_us == 0.0:
        return False
    ratio = max(1.0, question.balancing_threshold)
    return bool(fleet.found[BEST_BLOCKS] > fleet.loads[worker, DEPTH] * ratio)


@compiled
def _price_by_load(fleet: Fleet, policy: int) -> None:
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        price = float(fleet.loads[worker, PENDING_TOKENS])
        if policy == LOAD_BALANCE:
            price = fleet.clocks[worker, PENDING_US]
        elif policy == TOKENS and fleet.found[HAS_MIXED]:
            price += fleet.loads[worker, TAKEN]
        fleet.bids[worker, PRICE] = price


@compiled
def _price_by_chance(fleet: Fleet, question: Question) -> None:
    """The source whose place among the names is drawn."""
    count = fleet.found[NUM_SOURCES]
    for k in range(count):
        one, place = fleet.sources[k], 0
        for other in range(count):
            place += fleet.loads[fleet.sources[other], RANK] < fleet.loads[one, RANK]
        fleet.bids[one, PRICE] = 0.0 if place == question.draw % count else 1.0


@compiled
def _price_by_turn(fleet: Fleet, turn: int) -> None:
    """How many turns each source has to wait."""
    num_workers, count = len(fleet.loads), fleet.found[NUM_SOURCES]
    for k in range(count):
        worker = fleet.sources[k]
        waits = (fleet.loads[worker, RANK] - fleet.turns[turn]) % num_workers
        fleet.bids[worker, PRICE] = float(waits)
    fleet.turns[turn] = fleet.loads[cheapest(fleet), RANK] + 1


@compiled
def _next_turn(fleet: Fleet) -> int:
    num_workers, best = len(fleet.loads), fleet.decodes[0]
    for k in range(1, fleet.found[NUM_DECODES]):
        worker = fleet.decodes[k]
        waits = (fleet.loads[worker, RANK] - fleet.turns[_DECODE_TURN]) % num_workers
        if waits < (fleet.loads[best, RANK] - fleet.turns[_DECODE_TURN]) % num_workers:
            best = worker
    fleet.turns[_DECODE_TURN] = fleet.loads[best, RANK] + 1
    return int(best)


@compiled
def _fewest_tokens(fleet: Fleet) -> int:
    """The decode worker with the shortest queue in tokens, then the name."""
    best, loads = fleet.decodes[0], fleet.loads
    for k in range(1, fleet.found[NUM_DECODES]):
        worker = fleet.decodes[k]
        if loads[worker, TAKEN] != loads[best, TAKEN]:
            if loads[worker, TAKEN] < loads[best, TAKEN]:
                best = worker
        elif loads[worker, RANK] < loads[best, RANK]:
            best = worker
    return int(best)
