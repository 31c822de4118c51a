"""Both sides at once, as `policy.routing.pair` does: the front of each, the decode by bisection."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    ACTIVE,
    ADMISSION_US,
    BEFORE,
    CHOSEN_TTFT_US,
    COMPUTE,
    DECODES,
    FETCH_BEFORE,
    FETCH_COMPUTE,
    FIRST_SUM,
    FRONT,
    HAS_MIXED,
    IS_LAYERED,
    MIXED,
    NO_ROOM,
    NOBODY,
    NUM_DECODES,
    NUM_LAYERS,
    NUM_OUTPUT,
    NUM_SOURCES,
    PENDING_TOKENS,
    PENDING_US,
    PREFILL,
    PRICE,
    RANK,
    ROLE,
    SECOND_SUM,
    SOURCES,
    TOKEN_NBYTES,
    TPOT_SLO_US,
    TPOT_US,
    TTFT_SLO_US,
    Fleet,
    cheapest,
    fastest_decode,
    list_sources,
    survey,
)
from baton.sim.fast.routes_price import (
    decide,
    gate,
    missing_tokens,
    set_fetched_terms,
    set_local_terms,
    transfer_us,
)


@compiled
def by_pair(fleet: Fleet) -> int:
    """The least predicted time to the last token among the routes that meet both clocks.

    Where that one misses the TTFT target, the earliest first token if it does not.
    """
    if not survey(fleet):
        return NO_ROOM
    has_mixed = fleet.counts[HAS_MIXED] > 0
    num_mixed, num_decodes = _keep_in_time(fleet)
    if num_mixed == 0 and num_decodes == 0:
        return _refuse(fleet, has_mixed)
    _find_best(fleet, num_mixed, num_decodes, fleet.counts[NUM_OUTPUT])
    slo_us = fleet.values[TTFT_SLO_US]
    if slo_us > 0.0 and fleet.values[CHOSEN_TTFT_US] > slo_us:
        _find_best(fleet, num_mixed, num_decodes, 0)
    return gate(fleet)


@compiled
def _is_in_time(fleet: Fleet, worker: int) -> bool:
    slo_us = fleet.values[TPOT_SLO_US]
    return bool(slo_us == 0.0 or fleet.clocks[worker, TPOT_US] <= slo_us)


@compiled
def _keep_in_time(fleet: Fleet) -> tuple[int, int]:
    """How many mixed workers meet the TPOT target, and which decode workers do, moved to front."""
    num_mixed = num_decodes = 0
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        num_mixed += fleet.loads[worker, ROLE] == MIXED and _is_in_time(fleet, worker)
    for k in range(fleet.counts[NUM_DECODES]):
        worker = fleet.loads[k, DECODES]
        if _is_in_time(fleet, worker):
            fleet.loads[k, DECODES] = fleet.loads[num_decodes, DECODES]
            fleet.loads[num_decodes, DECODES] = worker
            num_decodes += 1
    return num_mixed, num_decodes


@compiled
def _refuse(fleet: Fleet, has_mixed: bool) -> int:
    """Somebody has room but is too slow for a token."""
    if has_mixed:
        decode = fastest_decode(fleet, SOURCES, fleet.counts[NUM_SOURCES])
        prefill = decode
    else:
        decode = fastest_decode(fleet, DECODES, fleet.counts[NUM_DECODES])
        prefill = fleet.loads[0, SOURCES]
        for k in range(1, fleet.counts[NUM_SOURCES]):
            worker = fleet.loads[k, SOURCES]
            us, least_us = fleet.clocks[worker, PENDING_US], fleet.clocks[prefill, PENDING_US]
            is_first = fleet.loads[worker, RANK] < fleet.loads[prefill, RANK]
            if us < least_us or (us == least_us and is_first):
                prefill = worker
    decide(fleet, prefill, decode, False, 0.0)
    return gate(fleet)


@compiled
def _find_best(fleet: Fleet, num_mixed: int, num_decodes: int, num_output: int) -> None:
    """The cheapest colocated route or the cheapest pair, whichever is cheaper."""
    price = math.inf
    if num_mixed > 0:
        price = _colocate(fleet, num_output)
    if num_decodes > 0:
        list_sources(fleet, PREFILL)
        if fleet.counts[NUM_SOURCES] > 0:
            _split(fleet, num_decodes, num_output, price)


@compiled
def _set_prefills(fleet: Fleet) -> None:
    """What comes before each prefill, and the prefill: by a fetch where that is better."""
    set_local_terms(fleet)
    set_fetched_terms(fleet)
    for k in range(fleet.counts[NUM_SOURCES]):
        bid = fleet.clocks[fleet.loads[k, SOURCES]]
        fetched_us = bid[FETCH_BEFORE] + bid[FETCH_COMPUTE]
        if fetched_us < bid[BEFORE] + bid[COMPUTE]:
            bid[BEFORE], bid[COMPUTE] = bid[FETCH_BEFORE], bid[FETCH_COMPUTE]
        else:
            bid[FETCH_BEFORE] = math.inf


@compiled
def _fetches(fleet: Fleet, worker: int) -> bool:
    return bool(fleet.clocks[worker, FETCH_BEFORE] < math.inf)


@compiled
def _colocate(fleet: Fleet, num_output: int) -> float:
    """Nothing moves, and the answer is decoded where its prompt was computed."""
    list_sources(fleet, MIXED)
    kept = 0
    for k in range(fleet.counts[NUM_SOURCES]):
        if _is_in_time(fleet, fleet.loads[k, SOURCES]):
            fleet.loads[kept, SOURCES] = fleet.loads[k, SOURCES]
            kept += 1
    fleet.counts[NUM_SOURCES] = kept
    _set_prefills(fleet)
    for k in range(kept):
        worker = fleet.loads[k, SOURCES]
        bid = fleet.clocks[worker]
        price = bid[PENDING_US] + bid[BEFORE] + bid[COMPUTE] + bid[ADMISSION_US]
        bid[PRICE] = price + num_output * bid[TPOT_US]
    best = cheapest(fleet)
    price = fleet.clocks[best, PRICE]
    decide(fleet, best, best, _fetches(fleet, best), price)
    return float(price)


@compiled
def _split(fleet: Fleet, num_decodes: int, num_output: int, best_price: float) -> None:
    """The best pair of all: of each source that no other one beats, where its two sums cross.

    It is the answer if it is cheaper than the one that there is.
    """
    _set_source_sums(fleet)
    _set_decode_sums(fleet, num_decodes, num_output)
    num_right, worker, lowest = 0, NOBODY, math.inf
    worker = _next_on_front(fleet, DECODES, num_decodes, ACTIVE, lowest)
    while worker >= 0:
        fleet.loads[num_right, FRONT] = worker
        num_right += 1
        lowest = fleet.clocks[worker, SECOND_SUM]
        worker = _next_on_front(fleet, DECODES, num_decodes, ACTIVE, lowest)
    best_source = best_decode = NOBODY
    lowest, count = math.inf, fleet.counts[NUM_SOURCES]
    worker = _next_on_front(fleet, SOURCES, count, PENDING_TOKENS, lowest)
    while worker >= 0:
        decode = _meet(fleet, worker, num_right)
        price = _pair_price(fleet, worker, decode)
        if price < best_price:
            best_source, best_decode, best_price = worker, decode, price
        lowest = fleet.clocks[worker, SECOND_SUM]
        worker = _next_on_front(fleet, SOURCES, count, PENDING_TOKENS, lowest)
    if best_source != NOBODY:
        fetches = _fetches(fleet, best_source)
        decide(fleet, best_source, best_decode, fetches, best_price)


@compiled
def _set_source_sums(fleet: Fleet) -> None:
    _set_prefills(fleet)
    shown = 1.0 / fleet.counts[NUM_LAYERS] if fleet.counts[IS_LAYERED] else 1.0
    for k in range(fleet.counts[NUM_SOURCES]):
        worker = fleet.loads[k, SOURCES]
        bid = fleet.clocks[worker]
        start_us = bid[PENDING_US] + bid[BEFORE]
        bid[FIRST_SUM] = start_us + bid[COMPUTE]
        bid[SECOND_SUM] = start_us + bid[COMPUTE] * shown


@compiled
def _set_decode_sums(fleet: Fleet, num_decodes: int, num_output: int) -> None:
    shown = 1.0 / fleet.counts[NUM_LAYERS] if fleet.counts[IS_LAYERED] else 1.0
    for k in range(num_decodes):
        worker = fleet.loads[k, DECODES]
        nbytes = missing_tokens(fleet, worker) * fleet.values[TOKEN_NBYTES]
        moved_us, clocks = transfer_us(fleet, nbytes), fleet.clocks[worker]
        rest_us = clocks[ADMISSION_US] + num_output * clocks[TPOT_US]
        fleet.clocks[worker, FIRST_SUM] = rest_us + moved_us * shown
        fleet.clocks[worker, SECOND_SUM] = rest_us + moved_us


@compiled
def _next_on_front(fleet: Fleet, workers: int, count: int, tie: int, lowest: float) -> int:
    """Of those with a second sum below the last one's, the least by both sums, tie and name."""
    best, loads, bids = NOBODY, fleet.loads, fleet.clocks
    for k in range(count):
        one = loads[k, workers]
        if bids[one, SECOND_SUM] >= lowest:
            continue
        if best == NOBODY or bids[one, FIRST_SUM] < bids[best, FIRST_SUM]:
            best = one
        elif bids[one, FIRST_SUM] > bids[best, FIRST_SUM]:
            continue
        elif bids[one, SECOND_SUM] != bids[best, SECOND_SUM]:
            best = one if bids[one, SECOND_SUM] < bids[best, SECOND_SUM] else best
        elif loads[one, tie] != loads[best, tie]:
            best = one if loads[one, tie] < loads[best, tie] else best
        elif loads[one, RANK] < loads[best, RANK]:
            best = one
    return int(best)


@compiled
def _pair_price(fleet: Fleet, source: int, decode: int) -> float:
    first = fleet.clocks[source, FIRST_SUM] + fleet.clocks[decode, FIRST_SUM]
    second = fleet.clocks[source, SECOND_SUM] + fleet.clocks[decode, SECOND_SUM]
    return float(max(first, second))


@compiled
def _meet(fleet: Fleet, source: int, num_right: int) -> int:
    """Along the decode front the larger sum is least where the first overtakes the second."""
    gap = fleet.clocks[source, SECOND_SUM] - fleet.clocks[source, FIRST_SUM]
    low, high = 0, num_right
    while low < high:
        middle = (low + high) // 2
        worker = fleet.loads[middle, FRONT]
        if fleet.clocks[worker, FIRST_SUM] - fleet.clocks[worker, SECOND_SUM] < gap:
            low = middle + 1
        else:
            high = middle
    best = fleet.loads[max(0, low - 1), FRONT]
    if 0 < low < num_right:
        other = fleet.loads[low, FRONT]
        if _pair_price(fleet, source, other) < _pair_price(fleet, source, best):
            best = other
    return int(best)
