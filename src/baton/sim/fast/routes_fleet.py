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

# Columns of `loads`, all set by the loop.
ROLE, PENDING_TOKENS, ACTIVE, HEADROOM, TAKEN, CAN_HOLD, IS_UP, IS_AVOIDED, RUNNING = range(9)
DEPTH, MEMORY_DEPTH, RANK = 9, 10, 11
NUM_LOADS = 12
"""HEADROOM: blocks; TAKEN: tokens on its account that decode there or will; CAN_HOLD: it accepts,
and has the blocks of this request; IS_AVOIDED: as prefill worker, since it failed this request;
RUNNING: its decode batch when the step was measured; depths: leading blocks of the prompt that it
holds anywhere, and where its decode reads; RANK: place of its name among all names."""
# Columns of `clocks`: set by the loop, but for the last two.
PENDING_US, TOKEN_US, PAIR_US, STEP_US, SEQUENCE_US, TPOT_US, ADMISSION_US = range(7)
"""Queue in time; measured prefill time of a token and of a causal pair, decode step, and what one
more sequence adds to it; predicted step with this request, and wait for the step under way."""
# Columns of `bids`: what a policy compares.
PRICE, BEFORE, COMPUTE, FETCH_BEFORE, FETCH_COMPUTE, FIRST_SUM, SECOND_SUM = range(7)
# Entries of `found`.
HAS_MIXED, NUM_SOURCES, NUM_DECODES, BEST_OWNER, BEST_BLOCKS = range(5)
# Roles.
PREFILL, DECODE, MIXED = range(3)
# How a question is answered.
ROUTED, NO_ROOM, MISSES_TTFT, MISSES_TPOT = range(4)

NOBODY = -1


class Fleet(NamedTuple):
    """All workers at the moment of a question, and scratch."""

    loads: Ints
    clocks: Floats
    bids: Floats
    sources: Ints
    """Who may compute the prompt: the first NUM_SOURCES entries."""
    decodes: Ints
    found: Ints
    turns: Ints
    """Of round robin: whose turn it is next, prefill and decode."""
    order: Ints
    fronts: Ints


class Question(NamedTuple):
    """`policy.routing.RouteQuestion`, in numbers; blocks are those of the prompt's prefixes."""

    draw: int
    num_tokens: int
    num_output: int
    block_size: int
    bytes_per_token: float
    num_layers: int
    is_layered: bool
    bytes_per_us: float
    overhead_us: float
    ttft_slo_us: float
    tpot_slo_us: float
    balancing_threshold: float
    may_fetch: bool


class Route(NamedTuple):
    """An answer; without ROUTED the workers are those of the best route that was refused."""

    code: int
    prefill: int
    decode: int
    fetch_owner: int
    """Whose first `fetch_blocks` blocks are copied to the prefill worker first; -1: nobody's."""
    fetch_blocks: int
    ttft_us: float
    tpot_us: float
    price: float


def make_fleet(roles: list[int], ranks: list[int] | None = None) -> Fleet:
    """Workers in order, of these roles; names are ranked by number unless told otherwise."""
    num_workers = len(roles)
    fleet = Fleet(
        loads=np.zeros((num_workers, NUM_LOADS), np.int64),
        clocks=np.zeros((num_workers, 7), np.float64),
        bids=np.zeros((num_workers, 7), np.float64),
        sources=np.zeros(num_workers, np.int64),
        decodes=np.zeros(num_workers, np.int64),
        found=np.zeros(5, np.int64),
        turns=np.zeros(2, np.int64),
        order=np.zeros(num_workers, np.int64),
        fronts=np.zeros(num_workers, np.int64),
    )
    fleet.loads[:, ROLE] = roles
    fleet.loads[:, IS_UP] = fleet.loads[:, CAN_HOLD] = 1
    fleet.loads[:, RANK] = ranks or range(num_workers)
    return fleet


@compiled
def survey(fleet: Fleet, question: Question) -> bool:
    """Sort the workers by phase, predict their steps, find the longest prefix; False: no room."""
    loads, found = fleet.loads, fleet.found
    num_decodes = num_mixed = 0
    for worker in range(len(loads)):
        _predict(fleet, worker)
        role = loads[worker, ROLE]
        if role == PREFILL or not loads[worker, IS_UP] or not loads[worker, CAN_HOLD]:
            continue
        if role == DECODE:
            fleet.decodes[num_decodes] = worker
            num_decodes += 1
        else:
            num_mixed += 1
    found[HAS_MIXED], found[NUM_DECODES] = num_mixed > 0, num_decodes
    list_sources(fleet, MIXED if num_mixed > 0 else PREFILL)
    if num_mixed == 0 and num_decodes == 0:
        found[NUM_SOURCES] = 0
    found[BEST_OWNER], found[BEST_BLOCKS] = NOBODY, 0
    if question.may_fetch:
        _find_best_owner(fleet, question)
    return bool(found[NUM_SOURCES] > 0)


@compiled
def list_sources(fleet: Fleet, role: int) -> None:
    """Workers of one role; of prefill workers those that are not avoided, if there are any."""
    count = _list(fleet, role, True)
    fleet.found[NUM_SOURCES] = count if count > 0 else _list(fleet, role, False)


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
        fleet.sources[count] = worker
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
def _find_best_owner(fleet: Fleet, question: Question) -> None:
    """The longest prefix; of equal ones the most in memory, then the least busy owner."""
    loads, most = fleet.loads, (question.num_tokens - 1) // question.block_size
    best = NOBODY
    for worker in range(len(loads)):
        depth = min(loads[worker, DEPTH], most)
        if depth == 0 or loads[worker, IS_AVOIDED] or not loads[worker, IS_UP]:
            continue
        if best == NOBODY or _owns_more(fleet, worker, best, most):
            best = worker
    fleet.found[BEST_OWNER] = best
    if best != NOBODY:
        fleet.found[BEST_BLOCKS] = min(loads[best, DEPTH], most)


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
def least_loaded(fleet: Fleet, workers: Ints, count: int) -> int:
    """The fewest requests, then the most room, then the name."""
    best, loads = workers[0], fleet.loads
    for k in range(1, count):
        one = workers[k]
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
def fastest_decode(fleet: Fleet, workers: Ints, count: int) -> int:
    """The lowest predicted TPOT; of equal ones the least loaded."""
    lowest, equal = math.inf, 0
    for k in range(count):
        lowest = min(lowest, fleet.clocks[workers[k], TPOT_US])
    for k in range(count):
        if fleet.clocks[workers[k], TPOT_US] == lowest:
            fleet.order[equal] = workers[k]
            equal += 1
    return least_loaded(fleet, fleet.order, equal)


@compiled
def cheapest(fleet: Fleet) -> int:
    """The source of the lowest price; of equal ones the shortest queue, then the name."""
    best, loads, bids = fleet.sources[0], fleet.loads, fleet.bids
    for k in range(1, fleet.found[NUM_SOURCES]):
        one = fleet.sources[k]
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
