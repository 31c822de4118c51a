"""What a route is chosen from: one row for each worker, filled by the loop before each question.

The compiled routes are second implementations of `baton.policy.routing`, over numbers instead of
objects: equal questions get equal answers, ties included. They see loads, prompt lengths and
prefixes, and no answer's length; `num_output` is what the router expects of an answer.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of `loads`: set by the loop, but for the last four.
ROLE, PENDING_TOKENS, ACTIVE, HEADROOM, TAKEN, CAN_HOLD, IS_UP, IS_AVOIDED, RUNNING = range(9)
DEPTH, MEMORY_DEPTH, RANK, SOURCES, DECODES, ORDER, FRONT = range(9, 16)
NUM_LOADS = 16
"""HEADROOM: blocks; TAKEN: tokens on its account that decode there or will; CAN_HOLD: it accepts,
and has the blocks of this request; IS_AVOIDED: as prefill worker, since it failed this request;
RUNNING: its decode batch when the step was measured; depths: leading blocks of the prompt that it
holds anywhere, and where its decode reads; RANK: place of its name among all names. Then lists of
workers, from the first row on: who may compute the prompt, who may decode, and scratch."""
# Columns of `clocks`: set by the loop, but for TPOT_US and what follows it, which policies compare.
PENDING_US, TOKEN_US, PAIR_US, STEP_US, SEQUENCE_US, TPOT_US, ADMISSION_US = range(7)
PRICE, BEFORE, COMPUTE, FETCH_BEFORE, FETCH_COMPUTE, FIRST_SUM, SECOND_SUM = range(7, 14)
NUM_CLOCKS = 14
"""Queue in time; measured prefill time of a token and of a causal pair, decode step, and what one
more sequence adds to it; predicted step with this request, and wait for the step under way."""
# Entries of `counts`: the question, what stays between questions, what is found, and the answer.
DRAW, NUM_TOKENS, NUM_OUTPUT, BLOCK_SIZE, NUM_LAYERS, IS_LAYERED, MAY_FETCH = range(7)
PREFILL_TURN, DECODE_TURN = 7, 8
HAS_MIXED, NUM_SOURCES, NUM_DECODES, BEST_OWNER, BEST_BLOCKS = range(9, 14)
CHOSEN_PREFILL, CHOSEN_DECODE, FETCH_OWNER, FETCH_BLOCKS = range(14, 18)
NUM_COUNTS = 18
"""Blocks are those of the prompt's prefixes. NUM_OUTPUT is what is expected of an answer. The first
FETCH_BLOCKS blocks of FETCH_OWNER (-1: nobody) are copied to the prefill worker first."""
# Entries of `values`: the question, and the answer.
TOKEN_NBYTES, BYTES_PER_US, OVERHEAD_US, TTFT_SLO_US, TPOT_SLO_US, THRESHOLD = range(6)
CHOSEN_TTFT_US, CHOSEN_TPOT_US, CHOSEN_PRICE = range(6, 9)
NUM_VALUES = 9
# Roles.
PREFILL, DECODE, MIXED = range(3)
# How a question is answered.
ROUTED, NO_ROOM, MISSES_TTFT, MISSES_TPOT = range(4)

NOBODY = -1


class Fleet(NamedTuple):
    """All workers at the moment of a question, the question, and its answer."""

    loads: Ints
    clocks: Floats
    counts: Ints
    values: Floats


def make_fleet(roles: list[int], ranks: list[int] | None = None) -> Fleet:
    """Workers in order, of these roles; names are ranked by number unless told otherwise."""
    num_workers = len(roles)
    fleet = Fleet(
        loads=np.zeros((num_workers, NUM_LOADS), np.int64),
        clocks=np.zeros((num_workers, NUM_CLOCKS), np.float64),
        counts=np.zeros(NUM_COUNTS, np.int64),
        values=np.zeros(NUM_VALUES, np.float64),
    )
    fleet.loads[:, ROLE] = roles
    fleet.loads[:, IS_UP] = fleet.loads[:, CAN_HOLD] = 1
    fleet.loads[:, RANK] = ranks or range(num_workers)
    fleet.counts[BLOCK_SIZE] = fleet.counts[NUM_LAYERS] = 1
    return fleet


@compiled
def survey(fleet: Fleet) -> bool:
    """Sort the workers by phase, predict their steps, find the longest prefix; False: no room."""
    loads, found = fleet.loads, fleet.counts
    num_decodes = num_mixed = 0
    for worker in range(len(loads)):
        _predict(fleet, worker)
        role = loads[worker, ROLE]
        if role == PREFILL or not loads[worker, IS_UP] or not loads[worker, CAN_HOLD]:
            continue
        if role == DECODE:
            fleet.loads[num_decodes, DECODES] = worker
            num_decodes += 1
        else:
            num_mixed += 1
    found[HAS_MIXED], found[NUM_DECODES] = num_mixed > 0, num_decodes
    list_sources(fleet, MIXED if num_mixed > 0 else PREFILL)
    if num_mixed == 0 and num_decodes == 0:
        found[NUM_SOURCES] = 0
    found[BEST_OWNER], found[BEST_BLOCKS] = NOBODY, 0
    if found[MAY_FETCH]:
        _find_best_owner(fleet)
    return bool(found[NUM_SOURCES] > 0)


@compiled
def list_sources(fleet: Fleet, role: int) -> None:
    """Workers of one role; of prefill workers those that are not avoided, if there are any."""
    count = _list(fleet, role, True)
    fleet.counts[NUM_SOURCES] = count if count > 0 else _list(fleet, role, False)


@compiled
def _list(fleet: Fleet, role: int, avoids: bool) -> int:
    loads, count = fleet.loads, 0
    for worker in range(len(loads)):
        if not loads[worker, IS_UP] or loads[worker, ROLE] != role:
            continue
        if role == MIXED and not loads[worker, CAN_HOLD]:
            continue
        if role == PREFILL and avoids and loads[worker, IS_AVOIDED]:
            continue
        fleet.loads[count, SOURCES] = worker
        count += 1
    return count


@compiled
def _predict(fleet: Fleet, worker: int) -> None:
    loads, clocks = fleet.loads, fleet.clocks
    more = max(0, loads[worker, ACTIVE] + 1 - loads[worker, RUNNING])
    clocks[worker, TPOT_US] = clocks[worker, STEP_US] + clocks[worker, SEQUENCE_US] * more
    waits = loads[worker, ACTIVE] > 0
    clocks[worker, ADMISSION_US] = clocks[worker, STEP_US] if waits else 0.0


@compiled
def max_cached(fleet: Fleet) -> int:
    """Most blocks that a prefill can reuse: the last row is always computed."""
    return int((fleet.counts[NUM_TOKENS] - 1) // fleet.counts[BLOCK_SIZE])


@compiled
def _find_best_owner(fleet: Fleet) -> None:
    """The longest prefix; of equal ones the most in memory, then the least busy owner."""
    loads, most = fleet.loads, max_cached(fleet)
    best = NOBODY
    for worker in range(len(loads)):
        depth = min(loads[worker, DEPTH], most)
        if depth == 0 or loads[worker, IS_AVOIDED] or not loads[worker, IS_UP]:
            continue
        if best == NOBODY or _owns_more(fleet, worker, best, most):
            best = worker
    fleet.counts[BEST_OWNER] = best
    if best != NOBODY:
        fleet.counts[BEST_BLOCKS] = min(loads[best, DEPTH], most)


@compiled
def _owns_more(fleet: Fleet, a: int, b: int, most: int) -> bool:
    loads, clocks = fleet.loads, fleet.clocks
    for column in (DEPTH, MEMORY_DEPTH):
        first, second = min(loads[a, column], most), min(loads[b, column], most)
        if first != second:
            return bool(first > second)
    if clocks[a, PENDING_US] != clocks[b, PENDING_US]:
        return bool(clocks[a, PENDING_US] < clocks[b, PENDING_US])
    if loads[a, ACTIVE] != loads[b, ACTIVE]:
        return bool(loads[a, ACTIVE] < loads[b, ACTIVE])
    return bool(loads[a, RANK] < loads[b, RANK])


@compiled
def least_loaded(fleet: Fleet, workers: int, count: int) -> int:
    """Of a list of workers the fewest requests, then the most room, then the name."""
    loads = fleet.loads
    best = loads[0, workers]
    for k in range(1, count):
        one = loads[k, workers]
        if loads[one, ACTIVE] != loads[best, ACTIVE]:
            if loads[one, ACTIVE] < loads[best, ACTIVE]:
                best = one
        elif loads[one, HEADROOM] != loads[best, HEADROOM]:
            if loads[one, HEADROOM] > loads[best, HEADROOM]:
                best = one
        elif loads[one, RANK] < loads[best, RANK]:
            best = one
    return int(best)


@compiled
def fastest_decode(fleet: Fleet, workers: int, count: int) -> int:
    """The lowest predicted TPOT; of equal ones the least loaded."""
    lowest, equal, loads = math.inf, 0, fleet.loads
    for k in range(count):
        lowest = min(lowest, fleet.clocks[loads[k, workers], TPOT_US])
    for k in range(count):
        one = loads[k, workers]
        if fleet.clocks[one, TPOT_US] == lowest:
            loads[equal, ORDER] = one
            equal += 1
    return least_loaded(fleet, ORDER, equal)


@compiled
def cheapest(fleet: Fleet) -> int:
    """The source of the lowest price; of equal ones the shortest queue, then the name."""
    loads, bids = fleet.loads, fleet.clocks
    best = loads[0, SOURCES]
    for k in range(1, fleet.counts[NUM_SOURCES]):
        one = loads[k, SOURCES]
        if bids[one, PRICE] != bids[best, PRICE]:
            if bids[one, PRICE] < bids[best, PRICE]:
                best = one
        elif loads[one, PENDING_TOKENS] != loads[best, PENDING_TOKENS]:
            if loads[one, PENDING_TOKENS] < loads[best, PENDING_TOKENS]:
                best = one
        elif loads[one, ACTIVE] != loads[best, ACTIVE]:
            if loads[one, ACTIVE] < loads[best, ACTIVE]:
                best = one
        elif loads[one, RANK] < loads[best, RANK]:
            best = one
    return int(best)
