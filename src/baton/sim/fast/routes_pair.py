"""Both sides at once, as `policy.routing.pair` does: the front of each, the decode by bisection."""

import math

from baton.compiled import compiled
from baton.sim.fast.routes_fleet import (
    ACTIVE,
    ADMISSION_US,
    BEFORE,
    COMPUTE,
    FETCH_BEFORE,
    FETCH_COMPUTE,
    FIRST_SUM,
    HAS_MIXED,
    MIXED,
    NO_ROOM,
    NOBODY,
    NUM_DECODES,
    NUM_SOURCES,
    PENDING_TOKENS,
    PENDING_US,
    PREFILL,
    PRICE,
    RANK,
    ROLE,
    SECOND_SUM,
    TPOT_US,
    Fleet,
    Ints,
    Question,
    Route,
    cheapest,
    fastest_decode,
    list_sources,
    survey,
)
from baton.sim.fast.routes_price import (
    decide,
    gate,
    missing_tokens,
    no_room,
    set_fetched_terms,
    set_local_terms,
    transfer_us,
)


@compiled
def by_pair(fleet: Fleet, question: Question) -> Route:
    """The least predicted time to the last token among the routes that meet both clocks.

    Where that one misses the TTFT target, the earliest first token if it does not.
    """
    if not survey(fleet, question):
        return no_room()
    has_mixed = fleet.found[HAS_MIXED] > 0
    num_mixed, num_decodes = _keep_in_time(fleet, question)
    if num_mixed == 0 and num_decodes == 0:
        return _refuse(fleet, question, has_mixed)
    best = _best(fleet, question, num_mixed, num_decodes, question.num_output)
    if question.ttft_slo_us > 0.0 and best.ttft_us > question.ttft_slo_us:
        best = _best(fleet, question, num_mixed, num_decodes, 0)
    return gate(question, best)


@compiled
def _is_in_time(fleet: Fleet, question: Question, worker: int) -> bool:
    slo_us = question.tpot_slo_us
    return bool(slo_us == 0.0 or fleet.clocks[worker, TPOT_US] <= slo_us)


@compiled
def _keep_in_time(fleet: Fleet, question: Question) -> tuple[int, int]:
    """How many mixed workers meet the TPOT target, and which decode workers do, moved to front."""
    num_mixed = num_decodes = 0
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        num_mixed += fleet.loads[worker, ROLE] == MIXED and _is_in_time(fleet, question, worker)
    for k in range(fleet.found[NUM_DECODES]):
        worker = fleet.decodes[k]
        if _is_in_time(fleet, question, worker):
            fleet.decodes[k] = fleet.decodes[num_decodes]
            fleet.decodes[num_decodes] = worker
            num_decodes += 1
    return num_mixed, num_decodes


@compiled
def _refuse(fleet: Fleet, question: Question, has_mixed: bool) -> Route:
    """Somebody has room but is too slow for a token."""
    if has_mixed:
        decode = fastest_decode(fleet, fleet.sources, fleet.found[NUM_SOURCES])
        return gate(question, decide(fleet, question, decode, decode, False, 0.0))
    decode, prefill = fastest_decode(fleet, fleet.decodes, fleet.found[NUM_DECODES]), NOBODY
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        us = fleet.clocks[worker, PENDING_US]
        least_us = fleet.clocks[prefill, PENDING_US] if prefill >= 0 else math.inf
        is_first = fleet.loads[worker, RANK] < fleet.loads[prefill, RANK]
        if us < least_us or (us == least_us and is_first):
            prefill = worker
    return gate(question, decide(fleet, question, prefill, decode, False, 0.0))


@compiled
def _best(
    fleet: Fleet, question: Question, num_mixed: int, num_decodes: int, num_output: int
) -> Route:
    """The cheapest colocated route or the cheapest pair, whichever is cheaper."""
    best = no_room()
    if num_mixed > 0:
        best = _colocated(fleet, question, num_output)
    if num_decodes > 0:
        list_sources(fleet, PREFILL)
        if fleet.found[NUM_SOURCES] > 0:
            split = _split(fleet, question, num_decodes, num_output)
            if best.code == NO_ROOM or split.price < best.price:
                best = split
    return best


@compiled
def _set_prefills(fleet: Fleet, question: Question) -> None:
    """What comes before each prefill, and the prefill: by a fetch where that is better."""
    set_local_terms(fleet, question)
    set_fetched_terms(fleet, question)
    for k in range(fleet.found[NUM_SOURCES]):
        bid = fleet.bids[fleet.sources[k]]
        fetched_us = bid[FETCH_BEFORE] + bid[FETCH_COMPUTE]
        if fetched_us < bid[BEFORE] + bid[COMPUTE]:
            bid[BEFORE], bid[COMPUTE] = bid[FETCH_BEFORE], bid[FETCH_COMPUTE]
        else:
            bid[FETCH_BEFORE] = math.inf


@compiled
def _fetches(fleet: Fleet, worker: int) -> bool:
    return bool(fleet.bids[worker, FETCH_BEFORE] < math.inf)


@compiled
def _colocated(fleet: Fleet, question: Question, num_output: int) -> Route:
    """Nothing moves, and the answer is decoded where its prompt was computed."""
    list_sources(fleet, MIXED)
    kept = 0
    for k in range(fleet.found[NUM_SOURCES]):
        if _is_in_time(fleet, question, fleet.sources[k]):
            fleet.sources[kept] = fleet.sources[k]
            kept += 1
    fleet.found[NUM_SOURCES] = kept
    _set_prefills(fleet, question)
    for k in range(kept):
        worker = fleet.sources[k]
        clocks, bid = fleet.clocks[worker], fleet.bids[worker]
        price = clocks[PENDING_US] + bid[BEFORE] + bid[COMPUTE] + clocks[ADMISSION_US]
        bid[PRICE] = price + num_output * clocks[TPOT_US]
    best = cheapest(fleet)
    price = fleet.bids[best, PRICE]
    return decide(fleet, question, best, best, _fetches(fleet, best), price)


@compiled
def _split(fleet: Fleet, question: Question, num_decodes: int, num_output: int) -> Route:
    """The best pair of all: of each source that no other one beats, where its two sums cross."""
    _set_source_sums(fleet, question)
    _set_decode_sums(fleet, question, num_decodes, num_output)
    num_right, worker, lowest = 0, NOBODY, math.inf
    worker = _next_on_front(fleet, fleet.decodes, num_decodes, ACTIVE, lowest)
    while worker >= 0:
        fleet.fronts[num_right] = worker
        num_right += 1
        lowest = fleet.bids[worker, SECOND_SUM]
        worker = _next_on_front(fleet, fleet.decodes, num_decodes, ACTIVE, lowest)
    best_source = best_decode = NOBODY
    best_price, lowest = math.inf, math.inf
    count = fleet.found[NUM_SOURCES]
    worker = _next_on_front(fleet, fleet.sources, count, PENDING_TOKENS, lowest)
    while worker >= 0:
        decode = _meet(fleet, worker, num_right)
        price = _pair_price(fleet, worker, decode)
        if price < best_price:
            best_source, best_decode, best_price = worker, decode, price
        lowest = fleet.bids[worker, SECOND_SUM]
        worker = _next_on_front(fleet, fleet.sources, count, PENDING_TOKENS, lowest)
    fetches = _fetches(fleet, best_source)
    return decide(fleet, question, best_source, best_decode, fetches, best_price)


@compiled
def _set_source_sums(fleet: Fleet, question: Question) -> None:
    _set_prefills(fleet, question)
    shown = 1.0 / question.num_layers if question.is_layered else 1.0
    for k in range(fleet.found[NUM_SOURCES]):
        worker = fleet.sources[k]
        bid = fleet.bids[worker]
        start_us = fleet.clocks[worker, PENDING_US] + bid[BEFORE]
        bid[FIRST_SUM] = start_us + bid[COMPUTE]
        bid[SECOND_SUM] = start_us + bid[COMPUTE] * shown


@compiled
def _set_decode_sums(fleet: Fleet, question: Question, num_decodes: int, num_output: int) -> None:
    shown = 1.0 / question.num_layers if question.is_layered else 1.0
    for k in range(num_decodes):
        worker = fleet.decodes[k]
        nbytes = missing_tokens(fleet, question, worker) * question.bytes_per_token
        moved_us, clocks = transfer_us(question, nbytes), fleet.clocks[worker]
        rest_us = clocks[ADMISSION_US] + num_output * clocks[TPOT_US]
        fleet.bids[worker, FIRST_SUM] = rest_us + moved_us * shown
        fleet.bids[worker, SECOND_SUM] = rest_us + moved_us


@compiled
def _next_on_front(fleet: Fleet, workers: Ints, count: int, tie: int, lowest: float) -> int:
    """Of those with a second sum below the last one's, the least by both sums, tie and name."""
    best, loads, bids = NOBODY, fleet.loads, fleet.bids
    for k in range(count):
        one = workers[k]
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
    first = fleet.bids[source, FIRST_SUM] + fleet.bids[decode, FIRST_SUM]
    second = fleet.bids[source, SECOND_SUM] + fleet.bids[decode, SECOND_SUM]
    return float(max(first, second))


@compiled
def _meet(fleet: Fleet, source: int, num_right: int) -> int:
    """Along the decode front the larger sum is least where the first overtakes the second."""
    gap = fleet.bids[source, SECOND_SUM] - fleet.bids[source, FIRST_SUM]
    low, high = 0, num_right
    while low < high:
        middle = (low + high) // 2
        worker = fleet.fronts[middle]
        if fleet.bids[worker, FIRST_SUM] - fleet.bids[worker, SECOND_SUM] < gap:
            low = middle + 1
        else:
            high = middle
    best = fleet.fronts[max(0, low - 1)]
    if 0 < low < num_right:
        other = fleet.fronts[low]
        if _pair_price(fleet, source, other) < _pair_price(fleet, source, best):
            best = other
    return int(best)
