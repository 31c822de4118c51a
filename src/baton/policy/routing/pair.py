"""Both sides at once: compute set and transfer set are priced apart, and meet in one TTFT (0x08E).

With layer streaming a transfer hides behind compute, so a pair is not the sum of its sides. It is
the larger of two sums (`exposed_us`):

    max(a1(P) + b1(D), a2(P) + b2(D))      a1 = before + p      b1 = rest + x / L
                                           a2 = before + p / L  b2 = rest + x

where `before` is queue and fetch, p the prefill, x the transfer, and rest the time at D. So only
the workers matter that no other one beats in both sums, and of those the decode side is searched
by bisection: exact over all pairs, without visiting them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import nsmallest
from operator import itemgetter

import msgspec

from baton.core.ids import Schedule
from baton.policy.routing.choosing import cheapest, decide, fastest_decode, others, refusal
from baton.policy.routing.decision import Alternative, Decision, Fetch, Outcome, Pair
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.price import (
    UNREACHABLE,
    decode_reuse_tokens,
    fetched_terms,
    held_blocks,
    local_terms,
    transfer_us,
)
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.survey import Survey, survey

_NUM_ALTERNATIVES = 3
_Bid = tuple[float, float, int, str, int]
"""Of one worker: both sums, what breaks ties, its name, and its index."""
_Side = list[_Bid]


class _Route(msgspec.Struct, frozen=True):
    """The index of a source and of a decode worker, and their price."""

    price: float
    source: int
    decode: int


def pair_route(question: RouteQuestion, workers: Sequence[WorkerLoad]) -> Outcome:
    """The route of the least predicted time to its last token, among those that meet both clocks.

    Where that one misses the TTFT target, the route of the earliest first token is taken if it
    does not; where no decode worker meets the TPOT target, or no route the other one, it is
    refused.
    """
    found = survey(question, workers)
    able = _in_time(question, found)
    if not able.sources:
        return _refuse(question, found)
    best = _best(question, able, question.num_output_tokens)
    if question.ttft_slo_us and best.ttft_us > question.ttft_slo_us:
        best = _best(question, able, 0)
    return refusal(question, best) or best


def _in_time(question: RouteQuestion, found: Survey) -> Survey:
    """Without the decode workers that would miss the TPOT target."""
    slo_us = question.tpot_slo_us
    if not slo_us:
        return found
    return msgspec.structs.replace(
        found,
        decodes=[w for w in found.decodes if w.tpot_us <= slo_us],
        mixed=[w for w in found.mixed if w.tpot_us <= slo_us],
    )


def _refuse(question: RouteQuestion, found: Survey) -> Outcome:
    """Nobody has room: wait. Somebody has, but is too slow: say so."""
    if not found.sources:
        return None
    decode = fastest_decode(found.mixed or found.decodes)
    prefill = decode
    if not found.mixed:
        prefill = min(found.prefills, key=lambda w: (w.pending_us, w.worker_id))
    return refusal(question, decide(question, prefill, decode, reason="tpot"))


def _best(question: RouteQuestion, found: Survey, num_output_tokens: int) -> Decision:
    """The cheapest colocated route or the cheapest pair, whichever is cheaper."""
    made = []
    if found.mixed:
        made.append(_colocated(question, found, num_output_tokens))
    if found.prefills and found.decodes:
        made.append(_split(question, found, num_output_tokens))
    return min(made, key=lambda decision: decision.price)


def _colocated(question: RouteQuestion, found: Survey, num_output_tokens: int) -> Decision:
    """Nothing moves, and the answer is decoded where its prompt was computed."""
    mixed = found.mixed
    before, computes, fetches = _prefills(question, found, mixed)
    prices = [
        w.pending_us + wait + compute + w.admission_us + num_output_tokens * w.tpot_us
        for w, wait, compute in zip(mixed, before, computes, strict=True)
    ]
    index = cheapest(mixed, prices)
    fetch = _fetch(found) if index in fetches else None
    return decide(
        question,
        mixed[index],
        mixed[index],
        reason="fetch" if fetch else "colocated",
        price=prices[index],
        fetch=fetch,
        alternatives=others(found, prices, index, mixed[index]),
    )


def _split(question: RouteQuestion, found: Survey, num_output_tokens: int) -> Decision:
    """The best pair of all."""
    sources, decodes = found.prefills, found.decodes
    left, fetches = _source_side(question, found, sources)
    routes = _ranked(left, _decode_side(question, decodes, num_output_tokens))
    best = routes[0]
    fetch = _fetch(found) if best.source in fetches else None
    return decide(
        question,
        sources[best.source],
        decodes[best.decode],
        reason="fetch" if fetch else "pair",
        price=best.price,
        fetch=fetch,
        alternatives=tuple(
            Alternative(
                pair=Pair(
                    prefill=sources[route.source].worker_id,
                    decode=decodes[route.decode].worker_id,
                ),
                price=route.price,
            )
            for route in routes[1:]
        ),
    )


def _fetch(found: Survey) -> Fetch:
    return Fetch(owner=found.best_owner, num_blocks=found.best_blocks)


def _prefills(
    question: RouteQuestion, found: Survey, sources: list[WorkerLoad]
) -> tuple[list[float], list[float], set[int]]:
    """What comes before each prefill, the prefill, and who is better off with a fetch."""
    held = held_blocks(question, sources)
    before, computes = local_terms(question, sources, held)
    fetches: set[int] = set()
    if found.best_blocks:
        waits, fetched = fetched_terms(question, found, sources, held)
        for index, wait_us in enumerate(waits):
            if wait_us + fetched[index] < before[index] + computes[index]:
                before[index], computes[index] = wait_us, fetched[index]
                fetches.add(index)
    return before, computes, fetches


def _source_side(
    question: RouteQuestion, found: Survey, sources: list[WorkerLoad]
) -> tuple[_Side, set[int]]:
    """a1 and a2 of each source, and which of them are better off with a fetch."""
    before, computes, fetches = _prefills(question, found, sources)
    shown = 1.0 / question.num_layers if question.schedule is Schedule.LAYER else 1.0
    side = [
        (
            (start_us := w.pending_us + wait_us) + compute_us,
            start_us + compute_us * shown,
            w.pending_tokens,
            w.worker_id,
            index,
        )
        for index, (w, wait_us, compute_us) in enumerate(
            zip(sources, before, computes, strict=True)
        )
    ]
    return side, fetches


def _decode_side(
    question: RouteQuestion, decodes: list[WorkerLoad], num_output_tokens: int
) -> _Side:
    """b1 and b2 of each decode worker: admission, its steps, and its transfer set."""
    memory, num_tokens = question.memory_depths, question.num_tokens
    rate, overhead_us = question.bytes_per_us, question.overhead_us
    whole_us = transfer_us(num_tokens * question.bytes_per_token, rate, overhead_us)
    shown = 1.0 / question.num_layers if question.schedule is Schedule.LAYER else 1.0
    side = []
    for index, worker in enumerate(decodes):
        moved_us = whole_us
        if memory and worker.worker_id in memory:
            rows = num_tokens - decode_reuse_tokens(question, worker)
            moved_us = transfer_us(rows * question.bytes_per_token, rate, overhead_us)
        rest_us = worker.admission_us + num_output_tokens * worker.tpot_us
        side.append(
            (
                rest_us + moved_us * shown,
                rest_us + moved_us,
                worker.active_requests,
                worker.worker_id,
                index,
            )
        )
    return side


def _front(side: _Side) -> _Side:
    """Those that no other one beats in both sums: the first sum rises, the second one falls."""
    front: _Side = []
    bound = min(side, key=itemgetter(1))[0]
    lowest = UNREACHABLE
    for bid in sorted([bid for bid in side if bid[0] <= bound]):
        if bid[1] < lowest:
            lowest = bid[1]
            front.append(bid)
    return front


def _ranked(left: _Side, right: _Side) -> list[_Route]:
    """The best route of each source that can be best, cheapest first, and a few of the others."""
    right = _front(right)
    gaps = [bid[0] - bid[1] for bid in right]
    likely = _front(left)
    likely += [bid for bid in nsmallest(_NUM_ALTERNATIVES + 1, left) if bid not in likely]
    routes = []
    for first, second, _, _, source in likely:
        # Where the first sum overtakes the second one along the front, the larger is least.
        cross = bisect_left(gaps, second - first)
        near = right[max(0, cross - 1) : cross + 1]
        prices = [max(first + bid[0], second + bid[1]) for bid in near]
        price = min(prices)
        decode = near[prices.index(price)][4]
        routes.append(_Route(price, source, decode))
    return nsmallest(_NUM_ALTERNATIVES + 1, routes, key=lambda route: route.price)
